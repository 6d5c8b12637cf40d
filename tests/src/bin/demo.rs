//! Tells the story on real processes; exits 0 only if every promise held.

use anyhow::Result;

#[tokio::main]
async fn main() -> Result<()> {
    epoch_tests::story::tell_all().await
}
