// SPDX-License-Identifier: Apache-2.0

package server

import (
	"cmp"
	"context"
	"regexp"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// ApiVersions, v0 to v4.
//
//   - v1 adds a throttle time, v3 is flexible and carries the client's name and version (KIP-511).
//   - A client that asks with a version beyond ours gets v0's format with UNSUPPORTED_VERSION and the whole list, and asks again.
//   - The response header is that of v0 in every version.

// softwareName is what KIP-511 allows as a client's name or version.
var softwareName = regexp.MustCompile(`^[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?$`)

// apiVersions answers with the keys and versions that are offered. The request has no body where its version is unknown.
func (s *Server) apiVersions(_ context.Context, r *request) kmsg.Response {
	resp := kmsg.NewPtrApiVersionsResponse()
	resp.ApiKeys = s.apiKeys()
	req := bodyOf[*kmsg.ApiVersionsRequest](r)
	if req == nil {
		resp.Version = 0
		resp.ErrorCode = r.code(codeUnsupportedVersion)
		return resp
	}
	resp.Version = r.version
	if r.version >= 3 && r.from != nil {
		r.from.client.Store(clientKind(req.ClientSoftwareName, req.ClientSoftwareVersion))
	}
	if r.version >= 3 && (!softwareName.MatchString(req.ClientSoftwareName) || !softwareName.MatchString(req.ClientSoftwareVersion)) {
		resp.ErrorCode = r.code(codeInvalidRequest)
		resp.ApiKeys = nil
	}
	return resp
}

// apiKeys lists what is offered, by key.
func (s *Server) apiKeys() []kmsg.ApiVersionsResponseApiKey {
	keys := make([]kmsg.ApiVersionsResponseApiKey, 0, len(s.apis))
	for _, a := range s.apis {
		k := kmsg.NewApiVersionsResponseApiKey()
		k.ApiKey, k.MinVersion, k.MaxVersion = a.key, a.min, a.max
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b kmsg.ApiVersionsResponseApiKey) int { return cmp.Compare(a.ApiKey, b.ApiKey) })
	return keys
}
