//! `windlass top`: queues, workers and leaders, again and again.

mod keys;
mod page;

use std::io::Write as _;
use std::time::Duration;

use windlass::Windlass;
use windlass::store::{LeaderRecord, PAGE_MAX, QueueList, WorkerFilter, WorkerRecord};

use self::keys::{Key, Keys};
use self::page::{Page, Rates, View};
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
    /// Refresh interval, e.g. 500ms or 5s
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = crate::text::parse_time)]
    every: Duration,

    /// Print once and exit; default if standard output is no terminal
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
    let mut keys = match is_live {
        true => Some(Keys::listen()?),
        false => None,
    };
    let shown = async {
        let mut controls = Controls::default();
        let mut snapshot = Snapshot::take(&windlass).await?;
        loop {
            rates.learn(&snapshot.queues);
            let page = Page { snapshot: &snapshot, rates: &rates };
            let text = match session.is_json() {
                true => crate::text::json_line(&page.json()) + "\n",
                false => picture(&controls.text(&page, page::terminal_height())),
            };
            out.write_all(text.as_bytes())?;
            out.flush()?;
            let pressed = async {
                match &mut keys {
                    Some(keys) => keys.next().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                key = pressed => {
                    if key == Key::Quit {
                        return Ok(());
                    }
                    controls.press(key);
                }
                () = tokio::time::sleep(arguments.every), if !controls.is_paused => {
                    snapshot = Snapshot::take(&windlass).await?;
                }
            }
        }
    };
    let result = tokio::select! {
        biased;
        asked = end_asked() => asked.map_err(anyhow::Error::from),
        result = shown => result,
    };
    drop(keys);
    if is_live {
        std::io::stdout().write_all(LEAVE.as_bytes())?;
    }
    result
}

/// What the keys have chosen.
#[derive(Debug, Default)]
struct Controls {
    view: View,
    is_paused: bool,
    is_help: bool,
}

const HELP: &str = "keys of windlass top

q                quit
?                show or hide this help
space            pause or resume
tab, arrows      switch the view: all, queues, leaders, workers
Ctrl-C           quit
";

impl Controls {
    fn press(&mut self, key: Key) {
        match key {
            Key::Quit => {}
            Key::Help => self.is_help = !self.is_help,
            Key::Pause => self.is_paused = !self.is_paused,
            Key::NextView => self.view = self.view.next(),
            Key::PreviousView => self.view = self.view.previous(),
        }
    }

    /// Renders the page with a line about the keys below it.
    fn text(&self, page: &Page<'_>, lines_max: usize) -> String {
        let room = lines_max.saturating_sub(1);
        let text = match self.is_help {
            true => HELP.lines().take(room).map(|line| format!("{line}\n")).collect(),
            false => page.text_of(self.view, room),
        };
        let paused = if self.is_paused { "paused  " } else { "" };
        format!("{text}{paused}view {}  q quit  ? help  space pause  tab view\n", self.view.word())
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_pause_switch_views_and_show_help() {
        let mut controls = Controls::default();
        controls.press(Key::Pause);
        controls.press(Key::NextView);
        assert!(controls.is_paused);
        assert_eq!(controls.view, View::Queues);
        controls.press(Key::PreviousView);
        controls.press(Key::PreviousView);
        assert_eq!(controls.view, View::Workers);
        controls.press(Key::Help);
        let snapshot = Snapshot {
            queues: QueueList {
                at: windlass::Timestamp::from_micros(0),
                counted_at: None,
                queues: Vec::new(),
            },
            workers: Vec::new(),
            has_more: false,
            leaders: Vec::new(),
        };
        let page = Page { snapshot: &snapshot, rates: &Rates::default() };
        let text = controls.text(&page, 3);
        assert_eq!(text.lines().count(), 3, "{text}");
        assert!(text.ends_with("paused  view workers  q quit  ? help  space pause  tab view\n"));
        controls.press(Key::Help);
        assert!(controls.text(&page, 24).contains("no workers\n"));
    }
}
