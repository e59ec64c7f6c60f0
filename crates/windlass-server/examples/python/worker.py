"""A Windlass worker in plain Python: no packages, three calls.

It joins with a workflow of two tasks, claims them by long polls, runs them and says what came of
them. Start a server and this program, then start a run:

    python3 worker.py http://127.0.0.1:7600

    curl -s http://127.0.0.1:7600/v1/runs -H 'Content-Type: application/json' \
        -d '{"workflow": "greet", "version": 1, "input": {"name": "sailor"}}'

Whether a task that failed is tried again is decided by the server, by the retry policy below.
"""

import json
import sys
import threading
import time
import urllib.error
import urllib.request

WORKFLOW = {
    "name": "greet",
    "version": 1,
    "tasks": [
        {"name": "compose", "timeout_ms": 10_000},
        {"name": "send", "after": ["compose"], "retry": {"attempts": 3, "first_delay_ms": 200}},
    ],
}

SLOTS = 4
LEASE_MS = 15_000


class Declined(Exception):
    """A failure that no attempt will mend."""


def compose(task):
    return "Hello, %s!" % task["input"]["name"]


def send(task):
    text = task["parents"][0]["output"]
    if "nobody" in text:
        raise Declined("there is nobody to send it to")
    return {"sent": text, "attempt": task["attempt"]}


HANDLERS = {"compose": compose, "send": send}


class Worker:
    def __init__(self, server):
        self.server = server.rstrip("/")
        self.claims = 0
        self.held = {}
        self.lock = threading.Lock()
        joined = self.post("/v1/workers", {
            "name": "python",
            "slots": SLOTS,
            "lease_ms": LEASE_MS,
            "workflows": [WORKFLOW],
        })
        self.path = "/v1/workers/" + joined["id"]
        self.heartbeat_s = joined["heartbeat_ms"] / 1000

    def call(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(self.server + path, data, headers, method=method)
        with urllib.request.urlopen(request, timeout=60) as answer:
            text = answer.read()
            return json.loads(text) if text else None

    def post(self, path, body):
        """Sends until there is an answer: every verb may be repeated."""
        while True:
            try:
                return self.call("POST", path, body)
            except urllib.error.HTTPError as error:
                problem = json.loads(error.read())
                if not problem["is_retryable"]:
                    raise SystemExit("%(detail)s [%(code)s]" % problem)
            except (urllib.error.URLError, ConnectionError, TimeoutError):
                pass
            time.sleep(1)

    def beat(self):
        """Keeps the lease while handlers run."""
        while True:
            time.sleep(self.heartbeat_s)
            with self.lock:
                # A claim that is under way is not settled: its tasks are not known here yet.
                held, settled = list(self.held), max(self.claims - 1, 0)
            answer = self.post(self.path + "/heartbeat", {"settled": settled, "held": held})
            for lost in answer["lost"]:
                with self.lock:
                    self.held.pop(lost["token"], None)

    def run(self, task):
        try:
            outcome = {"succeeded": HANDLERS[task["task"]](task)}
        except Declined as error:
            failure = {"code": "declined", "message": str(error), "is_retryable": False}
            outcome = {"failed": failure}
        except Exception as error:
            outcome = {"failed": {"message": repr(error)}}
        body = {"tasks": [{"token": task["token"], "outcome": outcome}]}
        self.post(self.path + "/finish", body)
        with self.lock:
            self.held.pop(task["token"], None)

    def work(self, tasks_max=None):
        """Claims and runs; ends after `tasks_max` tasks if that is said."""
        threading.Thread(target=self.beat, daemon=True).start()
        done = 0
        while tasks_max is None or done < tasks_max:
            with self.lock:
                free = SLOTS - len(self.held)
                self.claims += free > 0
                number = self.claims
            if free == 0:
                time.sleep(0.05)
                continue
            handlers = [{"name": WORKFLOW["name"], "version": WORKFLOW["version"]}]
            claim = {"number": number, "limit": free, "wait_ms": 20_000, "workflows": handlers}
            tasks = self.post(self.path + "/claim", claim)["tasks"]
            with self.lock:
                self.held.update((task["token"], task) for task in tasks)
            threads = [threading.Thread(target=self.run, args=(task,)) for task in tasks]
            for thread in threads:
                thread.start()
            if tasks_max is not None:
                for thread in threads:
                    thread.join()
            done += len(tasks)

    def leave(self):
        self.call("DELETE", self.path)


if __name__ == "__main__":
    worker = Worker(sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:7600")
    limit = int(sys.argv[2]) if len(sys.argv) > 2 else None
    try:
        worker.work(limit)
    finally:
        worker.leave()
