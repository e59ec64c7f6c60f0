//! What becomes of the list of cases.

/// The tests of [`store_contract`].
#[doc(hidden)]
#[macro_export]
macro_rules! store_contract_tests {
    ([$make:expr] $($module:ident { $($case:ident)* })*) => {
        $(
            mod $module {
                #[allow(unused_imports, reason = "a closure names nothing from outside")]
                use super::*;

                $(
                    #[::tokio::test]
                    async fn $case() {
                        let subject = ($make)().await;
                        $crate::testing::contract::cases::$case(&subject).await;
                    }
                )*
            }
        )*
    };
}

/// The functions of [`cases`]. A case that is not in the list is dead code, which
/// the compiler reports.
#[doc(hidden)]
#[macro_export]
macro_rules! store_contract_functions {
    ([] $($module:ident { $($case:ident)* })*) => {
        $($(
            #[doc = concat!("The case `", stringify!($case), "`, with the audit.")]
            pub async fn $case(subject: &dyn super::Subject) {
                let bench = super::bench::Bench::new(subject);
                super::$module::$case(&bench).await;
                bench.audit().await;
                let found = subject.audit().await;
                assert!(found.is_empty(), "the audit finds {found:#?}");
            }
        )*)*
    };
}
