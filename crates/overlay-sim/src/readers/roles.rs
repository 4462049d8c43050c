//! Which nodes of measured data become transit nodes.

use crate::network::Role;

/// `transit` nodes become transit nodes: those with the smallest median round trip in this slice, because an operator
/// places such nodes well. At least two leaves are left.
pub fn roles(count: usize, slice: &[f32], transit: usize) -> Vec<Role> {
    let mut medians: Vec<(f32, usize)> = slice
        .chunks(count.max(1))
        .enumerate()
        .map(|(node, row)| {
            let mut known: Vec<f32> = row.iter().copied().filter(|value| *value > 0.0).collect();
            known.sort_by(f32::total_cmp);
            (
                known.get(known.len() / 2).copied().unwrap_or(f32::MAX),
                node,
            )
        })
        .collect();
    medians.sort_by(|one, other| one.0.total_cmp(&other.0).then(one.1.cmp(&other.1)));
    let mut roles = vec![Role::Leaf; count];
    for (_, node) in medians
        .into_iter()
        .take(transit.min(count.saturating_sub(2)))
    {
        if let Some(role) = roles.get_mut(node) {
            *role = Role::Transit;
        }
    }
    roles
}
