//! The calls about who may do what.

use epoch_proto::v1;
use epoch_proto::v1::permission_service_client::PermissionServiceClient;

use crate::call::Effect;
use crate::client::Client;
use crate::error::Error;

impl Client {
    /// Gives a principal verbs over the scopes that begin with a prefix, in place of those it had there.
    ///
    /// # Errors
    /// As for every call.
    pub async fn grant_permission(
        &self,
        request: v1::GrantPermissionRequest,
    ) -> Result<v1::GrantPermissionResponse, Error> {
        self.call(Effect::Repeatable, request, |channel, request| async move {
            PermissionServiceClient::new(channel).grant(request).await
        })
        .await
    }

    /// Takes a principal's verbs at a prefix away.
    ///
    /// # Errors
    /// As for every call.
    pub async fn revoke_permission(
        &self,
        request: v1::RevokePermissionRequest,
    ) -> Result<v1::RevokePermissionResponse, Error> {
        self.call(Effect::Repeatable, request, |channel, request| async move {
            PermissionServiceClient::new(channel).revoke(request).await
        })
        .await
    }

    /// Principals with their permissions, tokens and limits, one page.
    ///
    /// # Errors
    /// As for every call.
    pub async fn list_permissions(
        &self,
        request: v1::ListPermissionsRequest,
    ) -> Result<v1::ListPermissionsResponse, Error> {
        self.call(Effect::Read, request, |channel, request| async move {
            PermissionServiceClient::new(channel).list(request).await
        })
        .await
    }

    /// Makes a bearer token known, by its hash.
    ///
    /// # Errors
    /// As for every call.
    pub async fn add_token(
        &self,
        request: v1::AddTokenRequest,
    ) -> Result<v1::AddTokenResponse, Error> {
        self.call(Effect::Repeatable, request, |channel, request| async move {
            PermissionServiceClient::new(channel)
                .add_token(request)
                .await
        })
        .await
    }

    /// Forgets a bearer token.
    ///
    /// # Errors
    /// As for every call.
    pub async fn remove_token(
        &self,
        request: v1::RemoveTokenRequest,
    ) -> Result<v1::RemoveTokenResponse, Error> {
        self.call(Effect::Repeatable, request, |channel, request| async move {
            PermissionServiceClient::new(channel)
                .remove_token(request)
                .await
        })
        .await
    }

    /// Sets what a principal may have at once, in place of all its limits.
    ///
    /// # Errors
    /// As for every call.
    pub async fn set_limits(
        &self,
        request: v1::SetLimitsRequest,
    ) -> Result<v1::SetLimitsResponse, Error> {
        self.call(Effect::Repeatable, request, |channel, request| async move {
            PermissionServiceClient::new(channel)
                .set_limits(request)
                .await
        })
        .await
    }
}
