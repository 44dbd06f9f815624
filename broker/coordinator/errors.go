// SPDX-License-Identifier: Apache-2.0

package coordinator

// The Kafka error codes that a group answers with (https://kafka.apache.org/protocol#protocol_error_codes).
const (
	// ErrNone is success.
	ErrNone int16 = 0
	// ErrOffsetMetadataTooLarge refuses a committed offset whose metadata is longer than Options.MaxMetadataBytes.
	ErrOffsetMetadataTooLarge int16 = 12
	// ErrCoordinatorNotAvailable answers every request to a group that was deleted: the client looks for the coordinator again.
	ErrCoordinatorNotAvailable int16 = 15
	// ErrIllegalGeneration refuses a request of an older (or newer) generation, and a commit of a partition that a client of a managed
	// group does not hold.
	ErrIllegalGeneration int16 = 22
	// ErrInconsistentGroupProtocol refuses a member that has no protocol in common with the others.
	ErrInconsistentGroupProtocol int16 = 23
	// ErrInvalidGroupID refuses an empty group id.
	ErrInvalidGroupID int16 = 24
	// ErrUnknownMemberID tells a client that its member id does not count (any more): it has to join anew.
	ErrUnknownMemberID int16 = 25
	// ErrInvalidSessionTimeout refuses a session timeout outside of Options.MinSessionTimeout and Options.MaxSessionTimeout.
	ErrInvalidSessionTimeout int16 = 26
	// ErrRebalanceInProgress tells a member to join again.
	ErrRebalanceInProgress int16 = 27
	// ErrNonEmptyGroup refuses to delete a group that has members.
	ErrNonEmptyGroup int16 = 68
	// ErrMemberIDRequired answers a first join with the member id to join with (KIP-394).
	ErrMemberIDRequired int16 = 79
	// ErrGroupMaxSizeReached refuses a member beyond Options.MaxMembers.
	ErrGroupMaxSizeReached int16 = 81
	// ErrFencedInstanceID tells a static member that another client has taken its instance id (KIP-345).
	ErrFencedInstanceID int16 = 82
	// ErrGroupSubscribedToTopic refuses to delete offsets of a topic that a member reads (KIP-496).
	ErrGroupSubscribedToTopic int16 = 86
	// ErrGroupIDNotFound refuses a KIP-848 member of a group whose members cannot all follow an assignment of the group's (another protocol type).
	ErrGroupIDNotFound int16 = 69
	// ErrFencedMemberEpoch refuses a heartbeat of another epoch than the member's: the client gives up what it holds and joins anew (KIP-848).
	ErrFencedMemberEpoch int16 = 110
	// ErrUnreleasedInstanceID refuses a client whose instance id another one has that is alive (KIP-848).
	ErrUnreleasedInstanceID int16 = 111
	// ErrUnsupportedAssignor refuses an assigner that does not exist (KIP-848).
	ErrUnsupportedAssignor int16 = 112
	// ErrStaleMemberEpoch refuses a commit, or to tell committed offsets, of another epoch than the member's (KIP-848): the client tries again with
	// the epoch that its heartbeat tells.
	ErrStaleMemberEpoch int16 = 113
	// ErrInvalidRegularExpression refuses a subscription (KIP-848).
	ErrInvalidRegularExpression int16 = 128
)
