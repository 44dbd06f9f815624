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
)
