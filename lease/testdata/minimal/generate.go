// SPDX-License-Identifier: Apache-2.0

// Package minimal is a three-field client of the heartbeat protocol, for tests.
package minimal

//go:generate protoc --go_out=. --go_opt=paths=source_relative minimal.proto
