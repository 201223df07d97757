//! The command line: a scenario and its options, each `--name value`.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::time::Duration;

use crate::failure::Failure;

/// What is printed where the command line is wrong.
pub const USAGE: &str = "\
usage: mq9-load <publish|fanout|request|append|drain|create|wait|push|work> --server HOST:PORT [options]

  --server HOST:PORT  the server, without authentication
  --ca FILE           speak TLS with it, and trust this certificate (PEM)
  --pid PID           its process id, to report its processor time
  --cpu CORE          stay on this core
  --size BYTES        payload (128)
  --seconds S         how long (2), or:
  --count N           how many messages or requests
  --warmup S          the same load before, not counted (0.5)
  --patience S        give up when the server is silent for so long (10)

  publish: --connections N (1)
  fanout:  --subscribers N (10), --window N messages under way (512)
  request: --connections N (1), --window N requests under way on each (1),
           --responders N connections that answer (1),
           --subject S (bench.service); the server itself answers with --responders 0
           and --expect TEXT, which its answers begin with,
           --spread N, so that the number, twelve times % in the subject, stays below N,
           --priorities 1359 header mq9-priority with each digit in turn,
           --subjects N, below S and in turn: S.000000000000 and so on,
           --rate N requests per second in all, whether answers come or not: latency
           counts from when a request was due, and --window is the most under way
  append:  (Redis) --stream S (bench), --connections N (1), --window N (1), --rate N
  drain:   --from mailbox-json|mailbox-raw|jetstream-all|jetstream-each|redis,
           --name S the mailbox or stream (bench), --group S or consumer (workers),
           --batch N (1), --stored N messages, sent by request or append with
           --count N --warmup 0 on one connection, with as many --priorities N (1)
  create:  --what mailbox|stream|consumer|group (the last in Redis), --count N,
           --connections N (1), --window N (64), --stream S of consumers (bench),
           --group S (workers), --prefix S of their names (m), --rate N
  wait:    --from mailbox|jetstream|redis, --connections N (1000), each waits for one of
           those that create has made, --wake N of them in the end (all), --stream S,
           --group S; --seconds is how long nothing happens
  push:    --from mailbox|inbox|jetstream-ordered|jetstream-push|redis, --name S (bench),
           --subscribers N (1), --stored N messages, sent as for drain: the replay of them
           is measured, or with --rate N what is sent live after it
  work:    --name S the stream (bench), --group S its consumer (workers), --workers N (1)
           that take --batch N (1) at a time, --stored N messages sent by request, of which
           those from --first N (0) are left, and --most N of those (all); or where they were sent with --subjects N,
           --consumers N (1), each for one subject from --first-subject N (0) on and called
           S-000000000000 and so on, one after the other";

/// The options that have not been asked for yet.
#[derive(Debug)]
pub struct Arguments(BTreeMap<String, String>);

impl Arguments {
    /// The scenario and its options.
    pub fn parse(words: impl IntoIterator<Item = String>) -> Result<(String, Self), Failure> {
        let mut words = words.into_iter();
        let scenario = words.next().ok_or_else(|| Failure::Usage("no scenario".to_owned()))?;
        let mut options = BTreeMap::new();
        while let Some(word) = words.next() {
            let Some(name) = word.strip_prefix("--") else {
                return Err(Failure::Usage(format!("{word:?} is not an option")));
            };
            let Some(value) = words.next() else {
                return Err(Failure::Usage(format!("--{name} needs a value")));
            };
            options.insert(name.to_owned(), value);
        }
        Ok((scenario, Self(options)))
    }

    /// The option's value, if it was given.
    pub fn optional<T: FromStr>(&mut self, name: &str) -> Result<Option<T>, Failure> {
        let Some(value) = self.0.remove(name) else { return Ok(None) };
        match value.parse() {
            Ok(parsed) => Ok(Some(parsed)),
            Err(_) => Err(Failure::Usage(format!("--{name} {value:?}: not a valid value"))),
        }
    }

    /// A number between `least` and `most`, or `default`.
    pub fn number(
        &mut self,
        name: &str,
        default: usize,
        least: usize,
        most: usize,
    ) -> Result<usize, Failure> {
        let number = self.optional(name)?.unwrap_or(default);
        if (least..=most).contains(&number) {
            return Ok(number);
        }
        Err(Failure::Usage(format!("--{name} {number}: must be from {least} to {most}")))
    }

    /// A time in seconds, an hour at most.
    pub fn seconds(&mut self, name: &str, default: f64) -> Result<Duration, Failure> {
        let seconds: f64 = self.optional(name)?.unwrap_or(default);
        if (0.0..=3600.0).contains(&seconds) {
            return Ok(Duration::from_secs_f64(seconds));
        }
        Err(Failure::Usage(format!("--{name} {seconds}: must be from 0 to 3600")))
    }

    /// All options must have been asked for by now.
    pub fn finish(self) -> Result<(), Failure> {
        match self.0.into_keys().next() {
            None => Ok(()),
            Some(name) => Err(Failure::Usage(format!("--{name}: no such option here"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<(String, Arguments), Failure> {
        Arguments::parse(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn options_have_defaults_and_limits() {
        let (scenario, mut arguments) = parse("publish --size 1024 --warmup 0.25").unwrap();
        assert_eq!(scenario, "publish");
        assert_eq!(arguments.number("size", 128, 8, 4096).unwrap(), 1024);
        assert_eq!(arguments.number("connections", 3, 1, 10).unwrap(), 3);
        assert_eq!(arguments.seconds("warmup", 1.0).unwrap(), Duration::from_millis(250));
        arguments.finish().unwrap();
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (line, name) in [
            ("publish --size 4", "--size"),
            ("publish --size x", "--size"),
            ("publish --x 1", "--x"),
        ] {
            let (_, mut arguments) = parse(line).unwrap();
            let result = arguments.number("size", 128, 8, 4096).and_then(|_| arguments.finish());
            assert!(result.unwrap_err().to_string().contains(name), "{line}");
        }
        assert!(
            parse("").is_err() && parse("publish size").is_err() && parse("publish --a").is_err()
        );
    }
}
