//! See [`crate::fuzzing`].

use super::{syn, timestamps};

/// A packet of the gate's queue, from its IP header on.
pub(crate) fn packet(packet: &[u8]) {
    let read = syn::read(packet);
    if let Some(changed) = timestamps::without(packet) {
        assert_eq!(changed.len(), packet.len());
        // What it is and where it goes stays; an option fewer is found.
        let stays = |segment| match segment {
            syn::Segment::Syn(syn) => (Some((syn.request, syn.sequence)), None),
            syn::Segment::Acknowledgement(request) => (None, Some(request)),
        };
        assert_eq!(syn::read(&changed).map(stays), read.map(stays));
        assert!(timestamps::without(&changed).is_none_or(|again| again != changed));
    }
    if let Some(cut) = syn::without_data(packet) {
        assert!(cut.len() <= packet.len());
        assert_eq!(syn::read(&cut), read);
        assert_eq!(syn::without_data(&cut).as_ref(), Some(&cut));
    }
    let mut limited = packet.to_vec();
    syn::set_hop_limit(&mut limited, 66);
    assert_eq!(syn::read(&limited).is_some(), read.is_some());
}
