//! The account that the server runs as.
//!
//! PostgreSQL refuses to run as root. Whoever is root hands the server to an account
//! without privileges; everyone else runs it as themselves.

use std::io;
use std::os::unix::fs::{MetadataExt, fchown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::{Error, ErrorKind};

/// Whom root hands the server to: the first of these that there is.
const ACCOUNTS: [&str; 2] = ["postgres", "nobody"];

const PASSWD: &str = "/etc/passwd";

/// Who runs the server and owns its files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Account {
    name: String,
    uid: u32,
    gid: u32,
    /// Whether it is not the account of this process, which is root then.
    is_other: bool,
}

/// Whether this process may act for other accounts.
pub(super) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

impl Account {
    /// The account for a directory: this process's own, or for root the first of
    /// [`ACCOUNTS`]. A directory that one of the others already owns stays with it, so
    /// that a cluster of `nobody` survives the installation of a package that
    /// brings `postgres`.
    pub(super) fn choose(owner_uid: u32) -> Result<Account, Error> {
        if !is_root() {
            let uid = rustix::process::geteuid().as_raw();
            let gid = rustix::process::getegid().as_raw();
            return Ok(Account { name: format!("uid {uid}"), uid, gid, is_other: false });
        }
        let passwd = std::fs::read_to_string(PASSWD).map_err(|error| {
            Error::new(ErrorKind::Unavailable, format!("cannot read {PASSWD:?}: {error}"))
        })?;
        Account::of_root(&passwd, owner_uid).ok_or_else(|| {
            let text = format!(
                "PostgreSQL does not run as root, and {PASSWD:?} has no account {:?} or {:?}",
                ACCOUNTS[0], ACCOUNTS[1]
            );
            Error::new(ErrorKind::Unavailable, text)
        })
    }

    fn of_root(passwd: &str, owner_uid: u32) -> Option<Account> {
        let found: Vec<Account> =
            ACCOUNTS.iter().filter_map(|name| Account::parse(passwd, name)).collect();
        let owner = found.iter().find(|account| account.uid == owner_uid);
        owner.or(found.first()).cloned()
    }

    /// An account's line of `/etc/passwd`. An account that is root by another name is
    /// no help and is left out.
    fn parse(passwd: &str, name: &str) -> Option<Account> {
        passwd.lines().find_map(|line| {
            let mut fields = line.split(':');
            let is_it = fields.next() == Some(name);
            let uid = fields.nth(1)?.parse().ok()?;
            let gid = fields.next()?.parse().ok()?;
            let account = Account { name: name.to_owned(), uid, gid, is_other: true };
            (is_it && uid != 0).then_some(account)
        })
    }

    /// What messages call it.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn uid(&self) -> u32 {
        self.uid
    }

    /// Hands an open file or directory to the account. Takes a descriptor, because a
    /// path inside a directory of that account may become a link to anything.
    pub(super) fn give(&self, file: &std::fs::File) -> io::Result<()> {
        if self.is_other && file.metadata()?.uid() != self.uid {
            fchown(file, Some(self.uid), Some(self.gid))?;
        }
        Ok(())
    }

    /// A program to be run as this account in a directory, with nothing in its
    /// environment that would steer PostgreSQL elsewhere. Messages are in English,
    /// because some are read, and the time zone is named, because `initdb` would try
    /// them all.
    pub(super) fn command(&self, program: &Path, directory: &Path) -> Command {
        let mut command = Command::new(program);
        command.current_dir(directory).stdin(Stdio::null());
        for (name, _) in std::env::vars_os() {
            if name.to_str().is_some_and(|name| name.starts_with("PG")) {
                command.env_remove(name);
            }
        }
        command.env("LC_ALL", "C").env("TZ", "UTC");
        if self.is_other {
            // Also empties the list of supplementary groups.
            command.gid(self.gid).uid(self.uid);
        }
        command
    }

    /// Checks that the account can reach a directory, by letting it try to enter the
    /// parent: what access lists and namespaces allow is not in the modes.
    pub(super) fn check_can_reach(&self, directory: &Path) -> Result<(), Error> {
        let parent = directory.parent().unwrap_or(directory);
        let tried = self.command(Path::new("true"), parent).status();
        if !tried.is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied) {
            return Ok(());
        }
        let closed = self.first_closed(parent);
        let culprit = closed.as_deref().unwrap_or(parent);
        let text = format!(
            "directory {directory:?} cannot be reached by account {:?}, which runs the server: \
             {culprit:?} is closed to it; choose a directory that it can enter",
            self.name
        );
        Err(Error::new(ErrorKind::Argument, text))
    }

    /// The outermost directory on the way whose mode keeps the account out.
    fn first_closed(&self, directory: &Path) -> Option<PathBuf> {
        let mut way: Vec<&Path> = directory.ancestors().collect();
        way.reverse();
        let closed = way.into_iter().find(|step| {
            std::fs::metadata(step).is_ok_and(|metadata| {
                let shift = match (metadata.uid() == self.uid, metadata.gid() == self.gid) {
                    (true, _) => 6,
                    (false, true) => 3,
                    (false, false) => 0,
                };
                metadata.mode() >> shift & 1 == 0
            })
        });
        closed.map(Path::to_owned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: &str = "root:x:0:0:root:/root:/bin/sh\n\
        nobody:x:65534:65533:nobody:/nonexistent:/bin/false\n\
        postgres:x:101:104::/var/lib/postgresql:/bin/sh\n";

    #[test]
    fn root_hands_a_fresh_directory_to_postgres() {
        let account = Account::of_root(BOTH, 0).unwrap();
        assert_eq!((account.name(), account.uid, account.gid), ("postgres", 101, 104));
    }

    #[test]
    fn root_leaves_a_directory_with_the_account_that_owns_it() {
        assert_eq!(Account::of_root(BOTH, 65534).unwrap().name(), "nobody");
    }

    #[test]
    fn root_takes_nobody_where_there_is_no_postgres() {
        let passwd = BOTH.replace("postgres:", "mysql:");
        assert_eq!(Account::of_root(&passwd, 0).unwrap().name(), "nobody");
    }

    #[test]
    fn an_account_that_is_root_by_another_name_is_not_taken() {
        assert_eq!(Account::of_root("postgres:x:0:0::/:/bin/sh\nnobody:x\n", 0), None);
    }
}
