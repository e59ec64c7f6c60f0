//! The store in PostgreSQL keeps the contract of stores.

use super::postgres;

windlass::store_contract!(postgres);
windlass::scoped_contract!(postgres);
