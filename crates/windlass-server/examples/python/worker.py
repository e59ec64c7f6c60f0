"""A Windlass worker in plain Python: no packages, a handful of calls.

It joins with three workflows, claims their tasks by long polls, runs them and says what came of
them. Start a server and this program, then start runs:

    export WINDLASS_TOKEN=wl_worker_...
    python3 worker.py http://127.0.0.1:7600

    url=http://127.0.0.1:7600; json='Content-Type: application/json'
    bearer="Authorization: Bearer $WINDLASS_TOKEN"
    post() { curl -s "$url$1" -H "$bearer" -H "$json" -d "$2"; }
    post /v1/runs '{"workflow": "greet", "input": {"name": "sailor"}}'
    post /v1/runs '{"workflow": "purchase", "input": {"item": "rope"}}'
    post /v1/runs/$run/signals '{"name": "approved", "value": {"by": "ada"}}'

`greet` is two tasks. `purchase` is a durable function: it charges, sleeps, waits for the signal
`approved` and then for a run of `ship`. Kill this program at any time and start it again: what
is recorded is not done twice.

Whether a task that failed is tried again is decided by the server, by the retry policies below.

WINDLASS_TOKEN says who this worker is, or WINDLASS_TOKEN_FILE a file that does, which is read for
each request. For an https address, WINDLASS_CA_FILE names the authorities that are trusted, if they
are not those of the machine, and WINDLASS_CLIENT_CERT_FILE and WINDLASS_CLIENT_KEY_FILE the
certificate that is shown to a server that asks for one.
"""

import json
import os
import signal
import ssl
import sys
import threading
import time
import urllib.error
import urllib.request

RETRY = {"attempts": 3, "first_delay_ms": 200}

WORKFLOWS = [
    {"name": "greet", "tasks": [
        {"name": "compose", "timeout_ms": 10_000},
        {"name": "send", "after": ["compose"], "retry": RETRY},
    ]},
    {"name": "purchase", "tasks": [{"name": "purchase", "retry": RETRY}]},
    {"name": "ship", "tasks": [{"name": "ship", "retry": RETRY}]},
]

SLOTS = 4
LEASE_MS = 15_000


class Declined(Exception):
    """A failure that no attempt will mend."""


class Diverged(Exception):
    """The code of a function is not the code that wrote its record; that of another worker may be."""


class Parked(BaseException):
    """A function waits: nothing of it stays in memory until it goes on."""


class Lost(BaseException):
    """The task is not this worker's any more."""


def compose(task, _function):
    return "Hello, %s!" % task["input"]["name"]


def send(task, _function):
    text = task["parents"][0]["output"]
    if "nobody" in text:
        raise Declined("there is nobody to send it to")
    return {"sent": text, "attempt": task["attempt"]}


def purchase(task, function):
    item = task["input"]["item"]
    receipt = function.step("charge", lambda: {"item": item, "charged_at": time.time()})
    function.sleep("cool down", 1)
    approval = function.signal("approved")
    shipped = function.run("ship", {"item": item, "receipt": receipt})
    return {"approved_by": approval["by"], "shipped": shipped}


def ship(task, _function):
    return "%s is on its way" % task["input"]["item"]


HANDLERS = {
    ("greet", "compose"): compose,
    ("greet", "send"): send,
    ("purchase", "purchase"): purchase,
    ("ship", "ship"): ship,
}


def moment(text):
    """A time so that it can be compared with others: all are UTC, with or without fractions."""
    seconds, _, fraction = text.rstrip("Z").partition(".")
    return seconds, fraction.ljust(6, "0")


class Function:
    """What one attempt of a durable function knows, and asks for.

    The function is run from its beginning whenever it goes on. Its calls are counted, and one that
    has a result gives it at once. This one makes one call at a time, so that its results have the
    order of its calls.
    """

    def __init__(self, worker, task):
        self.worker = worker
        self.token = task["token"]
        self.claimed_at = task["claimed_at"]
        self.known = {step["call"]: step for step in task["steps"]}
        self.calls = 0
        self.results = max((step["number"] or 0 for step in task["steps"]), default=0)

    def make(self, kind, name):
        """Makes the next call; answers what is known of it."""
        self.calls += 1
        known = self.known.get(self.calls)
        if known and (known["kind"], known["name"]) != (kind, name):
            raise Diverged("call %d is %s %r in the record, and %s %r in the code" % (
                self.calls, known["kind"], known["name"], kind, name))
        return known

    def say(self, verb, **more):
        """Says something of the task; it is refused if that is another worker's by now."""
        body = {"tasks": [dict(more, token=self.token)]}
        answer = self.worker.post(self.worker.path + verb, body)["tasks"][0]
        if answer["refusal"]:
            raise Lost(answer["refusal"])
        return answer

    def record(self, kind, name, result):
        self.results += 1
        change = {"done": {"number": self.results, "result": result}}
        step = {"call": self.calls, "name": name, "kind": kind, "change": change}
        self.say("/record", steps=[step])
        return self.value(result.get("value"), result.get("failed"))

    def park(self, known, kind, name, wait, awaits):
        """Waits, and needs no worker until then. What it waits for is recorded once."""
        change = {"open": {"wait": wait}}
        step = {"call": self.calls, "name": name, "kind": kind, "change": change}
        parked = {"steps": [] if known else [step], "waits": [self.calls] if known else [],
                  "awaits": awaits}
        self.say("/finish", outcome={"parked": parked})
        raise Parked

    def value(self, value, failure):
        if failure:
            raise Declined(failure["message"])
        return value

    def step(self, name, work):
        known = self.make("step", name)
        if known and known["is_done"]:
            return self.value(known["value"], known["failure"])
        return self.record("step", name, {"value": work()})

    def sleep(self, name, seconds):
        known = self.make("sleep", name)
        if known and known["is_done"]:
            return
        if not known or moment(known["due"]) > moment(self.claimed_at):
            self.park(known, "sleep", name, {"for_ms": seconds * 1000}, False)
        self.record("sleep", name, {"value": None})

    def signal(self, name):
        known = self.make("signal", name)
        if known and known["is_done"]:
            return known["value"]
        while True:
            newest = self.say("/take-signals", call=self.calls, name=name)["newest"]
            if newest is None:
                self.park(known, "signal", name, "forever", True)
            up_to = {"signal": newest, "number": self.results + 1}
            taken = self.say("/take-signals", call=self.calls, name=name, up_to=up_to)
            if taken["is_taken"]:
                self.results += 1
                return taken["value"]

    def run(self, workflow, value):
        """Starts a run, and waits for what it gives."""
        known = self.make("child", workflow)
        if known and known["is_done"]:
            return self.value(known["value"], known["failure"])
        started = self.say("/start-children", call=self.calls, workflow=workflow, input=value)
        if started["problem"]:
            raise Declined(started["problem"]["detail"])
        question = {"token": self.token, "call": self.calls}
        children = self.worker.post(self.worker.path + "/list-children", question)["children"]
        if children[0]["result"] is None:
            self.park(known, "child", workflow, {"children": 0}, True)
        return self.record("child", workflow, children[0]["result"])

    def check_end(self):
        """A function that ends has made all calls that are in its record."""
        if self.known and max(self.known) > self.calls:
            raise Diverged("call %d of the record is not made" % (self.calls + 1))


def trust():
    """Whom to believe that it is the server, and what to show it."""
    context = ssl.create_default_context(cafile=os.environ.get("WINDLASS_CA_FILE") or None)
    certificate = os.environ.get("WINDLASS_CLIENT_CERT_FILE")
    if certificate:
        context.load_cert_chain(certificate, os.environ["WINDLASS_CLIENT_KEY_FILE"])
    return context


def is_refused(error):
    """Whether one of both does not believe the other's certificate: no second try mends that."""
    reason = error if isinstance(error, ssl.SSLError) else getattr(error, "reason", None)
    is_cut = isinstance(reason, (ssl.SSLEOFError, ssl.SSLZeroReturnError))
    return isinstance(reason, ssl.SSLError) and not is_cut


def token():
    """What says who this worker is; none for a server that does not ask."""
    path = os.environ.get("WINDLASS_TOKEN_FILE")
    if path:
        with open(path, encoding="ascii") as file:
            return file.read().strip()
    return os.environ.get("WINDLASS_TOKEN")


class Worker:
    def __init__(self, server):
        self.server = server.rstrip("/")
        self.tls = trust() if self.server.startswith("https://") else None
        self.claims = 0
        self.held = {}
        self.is_draining = False
        self.lock = threading.Lock()
        joined = self.post("/v1/workers", {
            "name": "python",
            "slots": SLOTS,
            "lease_ms": LEASE_MS,
            "workflows": WORKFLOWS,
        })
        self.path = "/v1/workers/" + joined["id"]
        self.heartbeat_s = joined["heartbeat_ms"] / 1000

    def call(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        bearer = token()
        if bearer:
            headers["Authorization"] = "Bearer " + bearer
        request = urllib.request.Request(self.server + path, data, headers, method=method)
        with urllib.request.urlopen(request, timeout=60, context=self.tls) as answer:
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
            except (urllib.error.URLError, ssl.SSLError, ConnectionError, TimeoutError) as error:
                if is_refused(error):
                    raise SystemExit("%s: %s" % (self.server, error))
            time.sleep(1)

    def beat(self):
        """Keeps the lease while handlers run. Without heartbeats, tasks would run in vain: so it ends
        the process if it cannot go on."""
        try:
            self.beat_for_ever()
        except BaseException as error:
            print("heartbeats have ended: %s" % error, file=sys.stderr)
            os._exit(1)

    def beat_for_ever(self):
        while True:
            time.sleep(self.heartbeat_s)
            with self.lock:
                # A claim that is under way is not settled: its tasks are not known here yet.
                held, settled = list(self.held), max(self.claims - 1, 0)
            answer = self.post(self.path + "/heartbeat", {"settled": settled, "held": held})
            self.is_draining = answer["should_drain"]
            for lost in answer["lost"]:
                with self.lock:
                    self.held.pop(lost["token"], None)

    def outcome(self, task):
        """What came of a task; none if it was said already, or is not this worker's to say."""
        function = Function(self, task)
        try:
            value = HANDLERS[task["workflow"], task["task"]](task, function)
            function.check_end()
            return {"succeeded": value}
        except (Parked, Lost):
            return None
        except Declined as error:
            return {"failed": {"code": "declined", "message": str(error), "is_retryable": False}}
        except Diverged as error:
            return {"failed": {"code": "divergence", "message": str(error)}}
        except Exception as error:
            return {"failed": {"message": repr(error)}}

    def run(self, task):
        try:
            outcome = self.outcome(task)
            if outcome:
                self.finish(task, outcome)
        finally:
            with self.lock:
                self.held.pop(task["token"], None)

    def finish(self, task, outcome):
        """Reports what came of a task. If that is refused, an output that is too large for instance,
        the task fails with the reason."""
        path = self.path + "/finish"
        try:
            self.post(path, {"tasks": [{"token": task["token"], "outcome": outcome}]})
        except SystemExit as refusal:
            failed = {"failed": {"message": str(refusal), "is_retryable": False}}
            self.post(path, {"tasks": [{"token": task["token"], "outcome": failed}]})

    def work(self, tasks_max=None):
        """Claims and runs until it is drained, or for `tasks_max` tasks if that is given."""
        threading.Thread(target=self.beat, daemon=True).start()
        done = 0
        while not self.is_draining and (tasks_max is None or done < tasks_max):
            with self.lock:
                free = SLOTS - len(self.held)
                self.claims += free > 0
                number = self.claims
            if free == 0:
                time.sleep(0.05)
                continue
            handlers = [{"name": workflow["name"]} for workflow in WORKFLOWS]
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
        while self.held:
            time.sleep(0.05)

    def leave(self):
        """Says goodbye. If nobody hears it, the lease ends by itself."""
        try:
            self.call("DELETE", self.path)
        except OSError as error:
            print("not said goodbye: %s" % error, file=sys.stderr)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    worker = Worker(sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:7600")
    limit = int(sys.argv[2]) if len(sys.argv) > 2 else None
    try:
        worker.work(limit)
    except KeyboardInterrupt:
        pass
    finally:
        worker.leave()
