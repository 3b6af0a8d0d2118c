//! The date and time that a template may write: `strftime_now`, as Python's `strftime` in the C locale. It is in UTC,
//! so that a text does not depend on where its writer is.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::time::{Duration, SystemTime, UNIX_EPOCH};

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
/// No directive writes more bytes.
pub(super) const LONGEST: usize = 32;

/// A date and a time of day.
#[derive(Clone, Copy)]
pub(super) struct Clock {
    year: u64,
    month: u64,
    day: u64,
    /// From 0 on.
    day_of_year: u64,
    /// From Sunday, 0, on.
    weekday: u64,
    second: u64,
    micros: u32,
}

impl Clock {
    /// The time in UTC; a clock before 1970 is read as 1970.
    pub(super) fn new(time: SystemTime) -> Clock {
        let since = time.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        // A year of 9999 is the last that Python writes.
        let days = (since.as_secs() / 86_400).min(2_932_896);
        // Howard Hinnant's civil_from_days: years begin in March, in eras of 400 years.
        let shifted = days + 719_468;
        let (era, of_era) = (shifted / 146_097, shifted % 146_097);
        let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
        let of_year = of_era - (365 * year + year / 4 - year / 100);
        let part = (5 * of_year + 2) / 153;
        let day = of_year - (153 * part + 2) / 5 + 1;
        let month = if part < 10 { part + 3 } else { part - 9 };
        let year = year + era * 400 + u64::from(month <= 2);
        let leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
        let before = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];
        let before = before.get(month as usize - 1).copied().unwrap_or(0);
        Clock {
            year,
            month,
            day,
            day_of_year: before + day - 1 + u64::from(leap && month > 2),
            weekday: (days + 4) % 7,
            second: since.as_secs() % 86_400,
            micros: since.subsec_micros(),
        }
    }

    /// The text for a format. What is no directive stays as it is.
    pub(super) fn format(&self, format: &str) -> String {
        let mut out = String::new();
        let mut chars = format.chars();
        while let Some(c) = chars.next() {
            if c != '%' {
                out.push(c);
                continue;
            }
            match chars.next() {
                // Without padding, as the C library of most systems has it.
                Some('-') => {
                    let Some(c) = chars.next() else {
                        out.push_str("%-");
                        break;
                    };
                    let padded = self.directive(c);
                    match padded.as_deref() {
                        None => out.extend(['%', '-', c]),
                        Some(text) => {
                            let short = text.trim_start_matches([' ', '0']);
                            let all_zero = short.is_empty() && !text.is_empty();
                            out.push_str(if all_zero { "0" } else { short });
                        }
                    }
                }
                Some(c) => match self.directive(c) {
                    Some(text) => out.push_str(&text),
                    None => out.extend(['%', c]),
                },
                None => out.push('%'),
            }
        }
        out
    }

    fn directive(&self, c: char) -> Option<String> {
        let (hour, minute, second) = (self.second / 3600, self.second / 60 % 60, self.second % 60);
        let month = MONTHS.get(self.month as usize - 1).copied().unwrap_or_default();
        let day = DAYS.get(self.weekday as usize).copied().unwrap_or_default();
        let short = |name: &str| name.get(..3).unwrap_or(name).to_owned();
        let twelve = (hour + 11) % 12 + 1;
        // Weeks that begin on this weekday; days before the first of them are in week 0.
        let week = |first: u64| (self.day_of_year + 7 - (self.weekday + 7 - first) % 7) / 7;
        Some(match c {
            'Y' => self.year.to_string(),
            'y' => format!("{:02}", self.year % 100),
            'C' => format!("{:02}", self.year / 100),
            'm' => format!("{:02}", self.month),
            'B' => month.to_owned(),
            'b' | 'h' => short(month),
            'd' => format!("{:02}", self.day),
            'e' => format!("{:2}", self.day),
            'j' => format!("{:03}", self.day_of_year + 1),
            'A' => day.to_owned(),
            'a' => short(day),
            'w' => self.weekday.to_string(),
            'u' => (if self.weekday == 0 { 7 } else { self.weekday }).to_string(),
            'U' => format!("{:02}", week(0)),
            'W' => format!("{:02}", week(1)),
            'H' => format!("{hour:02}"),
            'I' => format!("{twelve:02}"),
            'p' => if hour < 12 { "AM" } else { "PM" }.to_owned(),
            'M' => format!("{minute:02}"),
            'S' => format!("{second:02}"),
            'f' => format!("{:06}", self.micros),
            // A time without a zone, as Python's `datetime.now()` is.
            'z' | 'Z' => String::new(),
            'n' => "\n".to_owned(),
            't' => "\t".to_owned(),
            '%' => "%".to_owned(),
            'F' => self.format("%Y-%m-%d"),
            'D' | 'x' => self.format("%m/%d/%y"),
            'T' | 'X' => self.format("%H:%M:%S"),
            'R' => self.format("%H:%M"),
            'c' => self.format("%a %b %e %H:%M:%S %Y"),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By Python's `datetime.strftime` in UTC.
    #[test]
    fn dates() {
        let of = |seconds, format: &str| Clock::new(UNIX_EPOCH + Duration::from_secs(seconds)).format(format);
        for (seconds, expected) in [
            (0, "1970-01-01 Thu 001 00:00:00 12 AM"),
            (951_782_400, "2000-02-29 Tue 060 00:00:00 12 AM"),
            (1_709_251_199, "2024-02-29 Thu 060 23:59:59 11 PM"),
            (1_709_251_200, "2024-03-01 Fri 061 00:00:00 12 AM"),
            (1_721_952_000, "2024-07-26 Fri 208 00:00:00 12 AM"),
            (1_767_182_399, "2025-12-31 Wed 365 11:59:59 11 AM"),
            (4_107_542_400, "2100-03-01 Mon 060 00:00:00 12 AM"),
        ] {
            assert_eq!(of(seconds, "%Y-%m-%d %a %j %H:%M:%S %I %p"), expected);
        }
        assert_eq!(of(1_721_952_000, "%d %b %Y, %-d/%-m, %U %W %w%u%%%e"), "26 Jul 2024, 26/7, 29 30 55%26");
        assert_eq!(of(0, "%-H %-d %q %-"), "0 1 %q %-");
    }
}
