//! Times as values of options.

use midspan_units::TimeSpan;

/// A time from a second to an hour.
pub fn from_second_to_hour(text: &str) -> Result<TimeSpan, String> {
    match text.parse::<TimeSpan>() {
        Ok(time) if (TimeSpan::from_seconds(1)..=TimeSpan::from_seconds(3600)).contains(&time) => {
            Ok(time)
        }
        Ok(_) => Err("write a time from 1 s to 1 h".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}
