// SPDX-License-Identifier: Apache-2.0

//go:build !race

package coordinator

// raceEnabled says that the tests run under the race detector, which makes them many times slower.
const raceEnabled = false
