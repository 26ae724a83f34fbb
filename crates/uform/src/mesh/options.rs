//! What a caller says of the run, checked: [`MeshOptions`] as they were given, and what they come to.

use std::path::PathBuf;
use std::time::Duration;

use crate::{Error, Result, quoted};

/// How long any peer is waited for when nothing else was said.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(120);

/// The longest that can be said, in seconds: some thirty years.
const LONGEST_TIMEOUT: f64 = 1e9;

/// The most processes of a run.
const MOST_PROCESSES: u32 = 65_536;

/// The longest name that file systems have, in bytes.
const LONGEST_JOB: usize = 255;

/// Which place a process has in a run, and where the run meets. `None` is "absent".
#[derive(Clone, Debug, Default)]
pub struct MeshOptions {
    /// This process's index among `host_domain_count`.
    pub host_domain_index: Option<u32>,
    /// How many processes the run has, one a host; absent: this one alone.
    pub host_domain_count: Option<u32>,
    /// GPUs one NVLink multicast domain spans; absent: those of the host.
    pub gpus_per_multimem_domain: Option<u32>,
    /// A directory that every host sees; it is there already. Not used without peers.
    pub directory: Option<PathBuf>,
    /// The run's unique name: one path component. Not used without peers.
    pub job: Option<String>,
    /// How long any peer is waited for, in seconds; absent: [`DEFAULT_TIMEOUT`].
    pub timeout_seconds: Option<f64>,
}

/// The same, checked.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Place {
    pub index: u32,
    pub count: u32,
    pub gpus_per_multimem_domain: u32,
    pub timeout: Duration,
    /// The directory and the job; none without peers.
    pub meeting: Option<(PathBuf, String)>,
}

impl MeshOptions {
    /// The place of a process that drives so many GPUs.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::Status::InvalidArgument) naming the key, the value, and what would do.
    pub(super) fn check(&self, gpus: u32) -> Result<Place> {
        let count = self.host_domain_count.unwrap_or(1);
        let index = match (self.host_domain_index, self.host_domain_count) {
            (None | Some(0), None) => 0,
            (Some(index), None) => {
                return Err(Error::invalid(format!(
                    "`hostDomainIndex` is {index} and `hostDomainCount` is absent: say how many \
                     processes there are, or leave both out for a run of this one alone"
                )));
            }
            (None, Some(1)) => 0,
            (None, Some(count)) => {
                return Err(Error::invalid(format!(
                    "`hostDomainCount` is {count} and `hostDomainIndex` is absent: expected this \
                     process's index, 0 to {}",
                    count.saturating_sub(1)
                )));
            }
            (Some(index), Some(_)) => index,
        };
        if index >= count {
            return Err(Error::invalid(format!(
                "`hostDomainIndex` is {index} and `hostDomainCount` is {count}: expected an index \
                 below the count, which is 1 or more"
            )));
        }
        if count > MOST_PROCESSES {
            return Err(Error::invalid(format!(
                "`hostDomainCount` is {count}: expected at most {MOST_PROCESSES}"
            )));
        }
        Ok(Place {
            index,
            count,
            gpus_per_multimem_domain: self.multimem(gpus, count)?,
            timeout: self.timeout()?,
            meeting: self.meeting(count)?,
        })
    }

    /// A multicast domain is several whole hosts, or a host is several of them.
    fn multimem(&self, gpus: u32, count: u32) -> Result<u32> {
        let domain = self.gpus_per_multimem_domain.unwrap_or(gpus);
        let all = u64::from(gpus) * u64::from(count);
        let divides = |part: u64, whole: u64| part > 0 && whole.is_multiple_of(part);
        let (own, domain_) = (u64::from(gpus), u64::from(domain));
        if divides(domain_, all) && (divides(domain_, own) || divides(own, domain_)) {
            return Ok(domain);
        }
        Err(Error::invalid(format!(
            "`gpusPerMultimemDomain` is {domain} where {count} processes drive {gpus} GPUs each: \
             expected a divisor of {gpus}, or a multiple of it that divides {all}"
        )))
    }

    fn timeout(&self) -> Result<Duration> {
        let Some(seconds) = self.timeout_seconds else {
            return Ok(DEFAULT_TIMEOUT);
        };
        match seconds > 0.0 && seconds <= LONGEST_TIMEOUT {
            true => Ok(Duration::from_secs_f64(seconds)),
            false => Err(Error::invalid(format!(
                "`timeoutSeconds` is {seconds}: expected a number above 0 and up to 1e9, or leave it \
                 out for {} s",
                DEFAULT_TIMEOUT.as_secs()
            ))),
        }
    }

    fn meeting(&self, count: u32) -> Result<Option<(PathBuf, String)>> {
        if let Some(job) = &self.job
            && !is_component(job)
        {
            return Err(Error::invalid(format!(
                "`job` is {}: expected one path component of 1 to {LONGEST_JOB} bytes, without a \
                 separator or NUL, and not \".\" or \"..\"",
                quoted::text(job)
            )));
        }
        if let Some(directory) = &self.directory
            && (directory.as_os_str().is_empty() || has_nul(directory))
        {
            return Err(Error::invalid(format!(
                "`directory` is {}: expected the path of a directory",
                quoted::text(&directory.to_string_lossy())
            )));
        }
        match (&self.directory, &self.job) {
            _ if count == 1 => Ok(None),
            (Some(directory), Some(job)) => Ok(Some((directory.clone(), job.clone()))),
            (directory, _) => {
                let absent = match directory {
                    None => "`directory` is absent: expected a directory that every host sees",
                    Some(_) => "`job` is absent: expected a name that no other run has",
                };
                Err(Error::invalid(format!(
                    "{absent}, by which {count} processes meet"
                )))
            }
        }
    }
}

fn has_nul(path: &std::path::Path) -> bool {
    path.as_os_str().as_encoded_bytes().contains(&0)
}

/// Whether a text names a folder in a directory, whatever the system.
fn is_component(text: &str) -> bool {
    let fits = (1..=LONGEST_JOB).contains(&text.len());
    fits && text != "." && text != ".." && !text.contains(['/', '\\', '\0'])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Status;

    fn with_peers() -> MeshOptions {
        MeshOptions {
            host_domain_index: Some(1),
            host_domain_count: Some(2),
            directory: Some("/shared".into()),
            job: Some("job".into()),
            ..MeshOptions::default()
        }
    }

    #[test]
    fn absent_options_are_a_run_of_one() {
        let expected = Place {
            index: 0,
            count: 1,
            gpus_per_multimem_domain: 4,
            timeout: DEFAULT_TIMEOUT,
            meeting: None,
        };
        assert_eq!(MeshOptions::default().check(4).unwrap(), expected);
        let alone = MeshOptions {
            host_domain_index: Some(0),
            host_domain_count: Some(1),
            directory: Some("unused".into()),
            job: Some("unused".into()),
            ..MeshOptions::default()
        };
        assert_eq!(alone.check(4).unwrap(), expected);
        let place = with_peers().check(4).unwrap();
        assert_eq!((place.index, place.count), (1, 2));
        assert_eq!(place.meeting, Some(("/shared".into(), "job".into())));
    }

    #[test]
    fn whatever_is_out_of_place_is_named() {
        type Change = fn(&mut MeshOptions);
        let table: [(Change, &str); 19] = [
            (
                |options| options.host_domain_count = Some(70_000),
                "at most 65536",
            ),
            (
                |options| options.host_domain_count = None,
                "`hostDomainIndex` is 1 and",
            ),
            (
                |options| options.host_domain_index = None,
                "`hostDomainIndex` is absent",
            ),
            (
                |options| options.host_domain_index = Some(2),
                "`hostDomainIndex` is 2 and",
            ),
            (
                |options| options.host_domain_count = Some(0),
                "`hostDomainCount` is 0",
            ),
            (|options| options.directory = None, "`directory` is absent"),
            (
                |options| options.directory = Some("".into()),
                "`directory` is \"\"",
            ),
            (
                |options| options.directory = Some("a\0b".into()),
                "`directory` is \"a\\0b\"",
            ),
            (|options| options.job = None, "`job` is absent"),
            (|options| options.job = Some("".into()), "`job` is \"\""),
            (|options| options.job = Some(".".into()), "`job` is \".\""),
            (|options| options.job = Some("..".into()), "`job` is \"..\""),
            (
                |options| options.job = Some("a/b".into()),
                "`job` is \"a/b\"",
            ),
            (
                |options| options.job = Some("a\0".into()),
                "`job` is \"a\\0\"",
            ),
            (
                |options| options.job = Some("a".repeat(256)),
                "`job` is \"aaa",
            ),
            (
                |options| options.timeout_seconds = Some(0.0),
                "`timeoutSeconds` is 0",
            ),
            (
                |options| options.timeout_seconds = Some(f64::NAN),
                "`timeoutSeconds` is NaN",
            ),
            (
                |options| options.timeout_seconds = Some(1e10),
                "`timeoutSeconds` is 1",
            ),
            (
                |options| options.timeout_seconds = Some(-1.5),
                "`timeoutSeconds` is -1.5",
            ),
        ];
        for (change, words) in table {
            let mut options = with_peers();
            change(&mut options);
            let error = options.check(4).unwrap_err();
            assert_eq!(error.status(), Status::InvalidArgument);
            assert!(error.message().contains(words), "{error}");
        }
    }

    #[test]
    fn a_multicast_domain_is_whole_hosts_or_divides_one() {
        for (domain, fits) in [
            (1, true),
            (2, true),
            (4, true),
            (8, true),
            (0, false),
            (3, false),
            (6, false),
            (16, false),
        ] {
            let options = MeshOptions {
                gpus_per_multimem_domain: Some(domain),
                ..with_peers()
            };
            assert_eq!(options.check(4).is_ok(), fits, "{domain}");
        }
    }
}
