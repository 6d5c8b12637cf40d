//! The story of the late write, as `scripts/demo` tells it.

#[tokio::test(flavor = "multi_thread")]
async fn a_late_write_is_refused_on_real_processes() -> anyhow::Result<()> {
    epoch_tests::story::tell_all().await
}
