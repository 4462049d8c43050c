//! Requests that name an interface (`struct ifreq`, netdevice(7)).

use std::io;

/// A request for the interface `name`, everything else in it zero.
///
/// # Errors
/// The name is longer than the kernel allows (15 bytes).
pub fn interface_request(name: &str) -> io::Result<libc::ifreq> {
    // SAFETY: an all-zero `ifreq` is a valid value of it (plain integers and pointers).
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if name.len() >= request.ifr_name.len() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("\"{name}\" is too long for the name of an interface"),
        ));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        // `c_char` is signed on some processors and unsigned on others.
        *to = libc::c_char::from_ne_bytes([from]);
    }
    Ok(request)
}

/// The name in a request that the kernel has answered.
pub fn interface_name(request: &libc::ifreq) -> String {
    let name = request.ifr_name.iter().take_while(|byte| **byte != 0);
    name.map(|byte| char::from(byte.to_ne_bytes()[0])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_kept_and_one_that_is_too_long_is_refused() {
        let request = interface_request("fifteen-bytes-0").unwrap();
        assert_eq!(interface_name(&request), "fifteen-bytes-0");
        assert!(interface_request("sixteen-bytes-01").is_err());
    }
}
