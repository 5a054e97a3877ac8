// SPDX-License-Identifier: Apache-2.0

package sim

import "time"

var epoch = time.Date(2026, 3, 1, 8, 0, 0, 0, time.UTC)
