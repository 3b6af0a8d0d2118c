//! Files of a folder that are read in full.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::error::Problem;

/// Reads a whole file of bounded size; `Ok(None)` if there is none.
pub(crate) fn read_small(path: &Path, name: &str, limit: u64) -> Result<Option<Vec<u8>>, Problem> {
    let unreadable = |source| Problem::Unreadable { file: name.to_owned(), source };
    let metadata = match path.metadata() {
        Ok(metadata) => metadata,
        Err(e) if matches!(e.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory) => {
            return match link(path) {
                Some(target) => Err(Problem::BrokenLink { file: name.to_owned(), target }),
                None => Ok(None),
            };
        }
        Err(e) => return Err(unreadable(e)),
    };
    if !metadata.is_file() {
        // A named pipe would block forever.
        return Err(unreadable(std::io::Error::other("not a regular file")));
    }
    let too_large = |bytes| Problem::TooLarge { file: name.to_owned(), bytes, limit };
    if metadata.len() > limit {
        return Err(too_large(metadata.len()));
    }
    let mut bytes = Vec::new();
    File::open(path).and_then(|f| f.take(limit + 1).read_to_end(&mut bytes)).map_err(unreadable)?;
    if bytes.len() as u64 > limit {
        return Err(too_large(bytes.len() as u64)); // it grew
    }
    Ok(Some(bytes))
}

/// Where a symbolic link leads, if a path is one that leads nowhere.
pub(crate) fn link(path: &Path) -> Option<String> {
    let target = path.read_link().ok()?;
    (!path.exists()).then(|| target.display().to_string())
}

/// JSON without the white space between its parts. What is no JSON is changed too, and stays none.
pub(crate) fn without_indentation(json: &[u8]) -> Vec<u8> {
    let (mut inside, mut escaped) = (false, false);
    let kept = |byte: &u8| {
        let kept = inside || !matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
        match byte {
            b'"' if !escaped => inside = !inside,
            _ => {}
        }
        escaped = inside && *byte == b'\\' && !escaped;
        kept
    };
    json.iter().copied().filter(kept).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::without_indentation;

    #[test]
    fn texts_keep_their_spaces() {
        let json = br#" { "a b" : [ 1 , "\\" , " \" \\\" x" , { } ] ,
            "\t \u0020" :null } "#;
        let small = without_indentation(json);
        assert_eq!(small, br#"{"a b":[1,"\\"," \" \\\" x",{}],"\t \u0020":null}"#);
        let read = |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).unwrap();
        assert_eq!(read(&small), read(json));
    }
}
