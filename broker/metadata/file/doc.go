// SPDX-License-Identifier: Apache-2.0

// Package file keeps the metadata of one standalone broker in a file.
//
// # The file
//
// topics.json lies in the broker's data directory. It is JSON, indented, topics sorted by name:
//
//	{
//	  "version": 1,
//	  "clusterID": "Yw3yLrnRT7aRRxH1_4vJhg",
//	  "topics": [
//	    {
//	      "name": "orders",
//	      "id": "fJ2dPq3WTf6Yy9fXGHcBtA",
//	      "partitions": 12,
//	      "config": {
//	        "retention.ms": 604800000,
//	        "retention.bytes": -1,
//	        "cleanup.policy": "delete",
//	        "max.message.bytes": 1048588,
//	        "delete.retention.ms": 86400000,
//	        "flush.messages": 1,
//	        "segment.bytes": 134217728,
//	        "segment.ms": 604800000,
//	        "message.timestamp.type": "CreateTime"
//	      }
//	    }
//	  ],
//	  "deleted": [
//	    {
//	      "name": "old-orders",
//	      "id": "0vLk5uM3QvS8ZyIcVtXn7w"
//	    }
//	  ]
//	}
//
// An entry of config from delete.retention.ms on may be missing: then it has its default, as in the files of brokers that did not have it.
//
// Ids are 16 bytes in unpadded URL-safe base64, as Kafka prints them. The cluster id is drawn at random when the file is
// made and kept. deleted names topics whose records may still be on disk: a topic goes onto that list in the same write that
// takes it from topics, and leaves it when the broker says that its records are gone, so that a crash in between leaves nothing
// behind that a new topic of the same name would show.
//
// Every change is written whole to topics.json.tmp, synced, renamed over topics.json, and the directory is synced; a crash
// leaves the old file or the new one. A topics.json.tmp that is found at start is what a crash left, and is removed.
package file
