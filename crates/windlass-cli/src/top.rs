//! `windlass top`: queues, workers and leaders, again and again.

mod page;

use std::io::Write as _;
use std::time::Duration;

use windlass::Windlass;
use windlass::store::{LeaderRecord, PAGE_MAX, QueueList, WorkerFilter, WorkerRecord};

use self::page::{Page, Rates};
use crate::session::Session;
use crate::text::Screen;

/// Leaves the screen as it was, shows the cursor; and the other way round.
const ENTER: &str = "\u{1b}[?1049h\u{1b}[?25l";
const LEAVE: &str = "\u{1b}[?25h\u{1b}[?1049l";

/// Begins a picture at the top. Each line ends with what clears the rest of it.
const HOME: &str = "\u{1b}[H";
const CLEAR_LINE: &str = "\u{1b}[K";
const CLEAR_BELOW: &str = "\u{1b}[J";

/// What `windlass top` can be told.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Arguments {
    /// How often to look, such as 500ms or 5s.
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = crate::text::parse_time)]
    every: Duration,

    /// Print one picture and end; also if standard output is no terminal.
    #[arg(long)]
    once: bool,
}

/// The shortest pause between two pictures.
const EVERY_MIN: Duration = Duration::from_millis(100);

/// What is seen at one moment.
struct Snapshot {
    queues: QueueList,
    workers: Vec<WorkerRecord>,
    /// Whether there are more workers.
    has_more: bool,
    leaders: Vec<LeaderRecord>,
}

impl Snapshot {
    async fn take(windlass: &Windlass) -> anyhow::Result<Self> {
        let filter = WorkerFilter { limit: PAGE_MAX, ..WorkerFilter::default() };
        let page = windlass.workers(filter).await?;
        Ok(Snapshot {
            queues: windlass.queues().await?,
            workers: page.workers,
            has_more: page.next.is_some(),
            leaders: windlass.leaders().await?,
        })
    }
}

/// Shows pictures until it is interrupted.
pub(crate) async fn run(arguments: Arguments, session: &Session) -> anyhow::Result<()> {
    let (windlass, _store) = session.connect().await?;
    anyhow::ensure!(
        arguments.every >= EVERY_MIN,
        "--every is {:?}, the least is {EVERY_MIN:?}",
        arguments.every
    );
    let is_live = Screen::detect(session.is_json()).is_live && !arguments.once;
    let mut rates = Rates::default();
    let mut out = std::io::stdout();
    if arguments.once || (!is_live && !session.is_json()) {
        let snapshot = Snapshot::take(&windlass).await?;
        let page = Page { snapshot: &snapshot, rates: &rates };
        let text = if session.is_json() {
            crate::text::json_line(&page.json()) + "\n"
        } else {
            page.text(usize::MAX)
        };
        return Ok(out.write_all(text.as_bytes())?);
    }
    if is_live {
        out.write_all(ENTER.as_bytes())?;
    }
    let shown = async {
        loop {
            let snapshot = Snapshot::take(&windlass).await?;
            rates.learn(&snapshot.queues);
            let page = Page { snapshot: &snapshot, rates: &rates };
            let text = if session.is_json() {
                crate::text::json_line(&page.json()) + "\n"
            } else {
                picture(&page.text(page::terminal_height()))
            };
            out.write_all(text.as_bytes())?;
            out.flush()?;
            tokio::time::sleep(arguments.every).await;
        }
    };
    let result = tokio::select! {
        biased;
        asked = end_asked() => asked.map_err(anyhow::Error::from),
        result = shown => result,
    };
    if is_live {
        std::io::stdout().write_all(LEAVE.as_bytes())?;
    }
    result
}

/// Waits until somebody asks the command to end.
async fn end_asked() -> std::io::Result<()> {
    #[cfg(unix)]
    {
        crate::signals::Signals::new()?.next().await;
        Ok(())
    }
    #[cfg(not(unix))]
    tokio::signal::ctrl_c().await
}

/// A text as it is drawn over the one before.
fn picture(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let after = format!("{CLEAR_LINE}\n");
    format!("{HOME}{}{CLEAR_LINE}{CLEAR_BELOW}", lines.join(&after))
}
