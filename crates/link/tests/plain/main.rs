//! Links and their stages as their callers use them.

mod common;
mod fixed_equals_link;
mod fq_codel;
mod fragments;
mod link;
mod pipeline;
mod properties;
mod reference;
mod stages;
