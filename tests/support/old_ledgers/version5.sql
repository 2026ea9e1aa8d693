BEGIN TRANSACTION;
CREATE TABLE accounts (
	id VARCHAR NOT NULL, 
	window_unix FLOAT, 
	window_milli_ms BIGINT NOT NULL, 
	decayed_milli_seconds FLOAT NOT NULL, 
	as_of_unix FLOAT NOT NULL, 
	PRIMARY KEY (id)
);
CREATE TABLE capacity (
	number INTEGER NOT NULL, 
	device_id VARCHAR NOT NULL, 
	milli INTEGER NOT NULL, 
	mib BIGINT NOT NULL, 
	from_ms BIGINT NOT NULL, 
	to_ms BIGINT, 
	PRIMARY KEY (number)
);
INSERT INTO "capacity" VALUES(1,'node1/0',1000,7936,1700001000000,NULL);
INSERT INTO "capacity" VALUES(2,'node1/1',1000,7936,1700075241394,NULL);
CREATE TABLE charges (
	number INTEGER NOT NULL, 
	lease_id VARCHAR NOT NULL, 
	device_id VARCHAR NOT NULL, 
	user VARCHAR NOT NULL, 
	project VARCHAR NOT NULL, 
	milli INTEGER NOT NULL, 
	mib BIGINT NOT NULL, 
	from_ms BIGINT NOT NULL, 
	to_ms BIGINT, 
	PRIMARY KEY (number)
);
INSERT INTO "charges" VALUES(1,'l1','node1/0','ann','default',200,1587,1700001000000,NULL);
INSERT INTO "charges" VALUES(2,'l3','node1/0','eve','default',100,793,1700001000000,NULL);
CREATE TABLE devices (
	id VARCHAR NOT NULL, 
	node VARCHAR NOT NULL, 
	ordinal INTEGER NOT NULL, 
	name VARCHAR NOT NULL, 
	uuid VARCHAR NOT NULL, 
	software BOOLEAN NOT NULL, 
	total_mib BIGINT NOT NULL, 
	profile TEXT NOT NULL, 
	healthy BOOLEAN NOT NULL, 
	health_reason VARCHAR NOT NULL, 
	present BOOLEAN NOT NULL, 
	driver VARCHAR DEFAULT '' NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "devices" VALUES('node1/0','node1',0,'Software GPU (gpupool)','00000000000000000000000000000000',1,8192,'driver_version 13000
device 0
name Software GPU (gpupool)
uuid 00000000000000000000000000000000
software 1
total_mib 8192
pci 0000:00:00.0
end
',1,'',1,'');
INSERT INTO "devices" VALUES('node1/1','node1',1,'Software GPU (gpupool)','00000000000000000000000000000001',1,8192,'driver_version 13000
device 1
name Software GPU (gpupool)
uuid 00000000000000000000000000000001
software 1
total_mib 8192
pci 0000:00:00.0
end
',1,'',1,'');
CREATE TABLE journal (
	number INTEGER NOT NULL, 
	at_unix FLOAT NOT NULL, 
	kind VARCHAR NOT NULL, 
	user VARCHAR NOT NULL, 
	lease_id VARCHAR NOT NULL, 
	session_id VARCHAR NOT NULL, 
	node VARCHAR NOT NULL, 
	explanation TEXT NOT NULL, 
	data JSON NOT NULL, step BIGINT, 
	PRIMARY KEY (number)
);
INSERT INTO "journal" VALUES(1,1700001000.0,'node-hello','','','','node1','node node1 offers 2 device(s)','{"instance": "run-1", "workers": 0}',NULL);
INSERT INTO "journal" VALUES(2,1700001000.0,'grant','ann','l1','s1','node1','granted 0.20 (1587 MiB) of node1/0','{"epoch": 1, "waited_seconds": 0.0, "key": "k1"}',NULL);
INSERT INTO "journal" VALUES(3,1700001000.0,'attached','ann','l1','s1','node1','session s1 is attached with epoch 1','{}',NULL);
INSERT INTO "journal" VALUES(4,1700001000.0,'grant','bob','l2','s2','node1','granted 0.30 (2380 MiB) of node1/0','{"epoch": 1, "waited_seconds": 0.0, "key": "k2"}',NULL);
INSERT INTO "journal" VALUES(5,1700001000.0,'attached','bob','l2','s2','node1','session s2 is attached with epoch 1','{}',NULL);
INSERT INTO "journal" VALUES(6,1700001000.0,'release','bob','l2','s2','node1','the holder gave it back (release)','{"reason": "release", "close_session": false}',NULL);
INSERT INTO "journal" VALUES(7,1700001000.0,'ended','bob','l2','s2','node1','the worker confirmed that the lease is over','{"reason": "release", "held_seconds": 0.0, "milli": 300, "device_seconds": 0.0}',NULL);
INSERT INTO "journal" VALUES(8,1700001000.0,'grant','eve','l3','s3','node1','granted 0.10 (793 MiB) of node1/0','{"epoch": 1, "waited_seconds": 0.0, "key": "k3"}',NULL);
INSERT INTO "journal" VALUES(9,1700001000.0,'attached','eve','l3','s3','node1','session s3 is attached with epoch 1','{}',NULL);
INSERT INTO "journal" VALUES(10,1700001000.0,'grant','bob','l4','s4','node1','granted 0.05 (396 MiB) of node1/0','{"epoch": 1, "waited_seconds": 0.0, "key": "k4"}',NULL);
INSERT INTO "journal" VALUES(11,1700001000.0,'attached','bob','l4','s4','node1','session s4 is attached with epoch 1','{}',NULL);
INSERT INTO "journal" VALUES(12,1700001000.0,'release','bob','l4','s4','node1','the holder gave it back (release)','{"reason": "release", "close_session": true}',NULL);
INSERT INTO "journal" VALUES(13,1700001000.0,'ended','bob','l4','s4','node1','the worker of session s4 ended with status 0','{"reason": "release", "held_seconds": 0.0, "milli": 50, "device_seconds": 0.0}',NULL);
INSERT INTO "journal" VALUES(14,1700001000.0,'refuse','ann','','','','9000 MiB is asked; the largest device node1/0 has 7936 MiB usable of 8192; ask for at most 7936MiB','{"reason": "bad-share", "key": "k5"}',NULL);
CREATE TABLE leases (
	id VARCHAR NOT NULL, 
	session_id VARCHAR NOT NULL, 
	user VARCHAR NOT NULL, 
	idempotency_key VARCHAR NOT NULL, 
	label VARCHAR NOT NULL, 
	holder VARCHAR NOT NULL, 
	epoch BIGINT NOT NULL, 
	shares JSON NOT NULL, 
	resize_shares JSON, 
	state VARCHAR NOT NULL, 
	reason VARCHAR NOT NULL, 
	granted_unix FLOAT NOT NULL, 
	ends_unix FLOAT, 
	ended_unix FLOAT, 
	new_session BOOLEAN NOT NULL, 
	reservation BOOLEAN NOT NULL, 
	close_session BOOLEAN NOT NULL, 
	gang VARCHAR DEFAULT '' NOT NULL, 
	part INTEGER DEFAULT '0' NOT NULL, 
	project VARCHAR DEFAULT 'default' NOT NULL, 
	kind VARCHAR DEFAULT 'interactive' NOT NULL, 
	priority INTEGER DEFAULT '100' NOT NULL, 
	PRIMARY KEY (id), 
	UNIQUE (user, idempotency_key), 
	UNIQUE (session_id, epoch)
);
INSERT INTO "leases" VALUES('l1','s1','ann','k1','','',1,'[["node1/0", 200, 1587]]','null','attached','',1700001000.0,1700001600.0,NULL,1,0,0,'',0,'default','interactive',100);
INSERT INTO "leases" VALUES('l2','s2','bob','k2','','',1,'[["node1/0", 300, 2380]]','null','ended','release',1700001000.0,NULL,1700001000.0,1,0,0,'',0,'default','interactive',100);
INSERT INTO "leases" VALUES('l3','s3','eve','k3','','',1,'[["node1/0", 100, 793]]','null','attached','',1700001000.0,NULL,NULL,1,1,0,'',0,'default','interactive',100);
INSERT INTO "leases" VALUES('l4','s4','bob','k4','','',1,'[["node1/0", 50, 396]]','null','ended','release',1700001000.0,NULL,1700001000.0,1,0,1,'',0,'default','interactive',100);
CREATE TABLE limits (
	user VARCHAR NOT NULL, 
	milli BIGINT, 
	shares INTEGER, 
	largest_milli INTEGER, 
	gpu_seconds BIGINT, 
	window_seconds BIGINT NOT NULL, 
	PRIMARY KEY (user)
);
CREATE TABLE meta (
	name VARCHAR NOT NULL, 
	value VARCHAR NOT NULL, 
	PRIMARY KEY (name)
);
INSERT INTO "meta" VALUES('schema_version','5');
CREATE TABLE nodes (
	name VARCHAR NOT NULL, 
	instance VARCHAR NOT NULL, 
	advertise_host VARCHAR NOT NULL, 
	lost BOOLEAN NOT NULL, 
	pool VARCHAR DEFAULT 'default' NOT NULL, 
	labels JSON DEFAULT '[]' NOT NULL, 
	sharing VARCHAR DEFAULT 'isolated' NOT NULL, 
	drained BOOLEAN DEFAULT 0 NOT NULL, 
	drain_reason VARCHAR DEFAULT '' NOT NULL, 
	PRIMARY KEY (name)
);
INSERT INTO "nodes" VALUES('node1','run-1','',0,'default','[]','isolated',0,'');
CREATE TABLE projects (
	path VARCHAR NOT NULL, 
	deserved BIGINT, 
	limit_milli BIGINT, 
	weight INTEGER NOT NULL, 
	priority INTEGER NOT NULL, 
	min_run FLOAT, 
	members JSON NOT NULL, 
	PRIMARY KEY (path)
);
CREATE TABLE quotas (
	user VARCHAR NOT NULL, 
	milli INTEGER, 
	shares INTEGER, 
	PRIMARY KEY (user)
);
INSERT INTO "quotas" VALUES('ann',500,2);
CREATE TABLE sessions (
	id VARCHAR NOT NULL, 
	user VARCHAR NOT NULL, 
	label VARCHAR NOT NULL, 
	holder VARCHAR NOT NULL, 
	node VARCHAR NOT NULL, 
	device_ids JSON NOT NULL, 
	token VARCHAR NOT NULL, 
	state VARCHAR NOT NULL, 
	reason VARCHAR NOT NULL, 
	epoch BIGINT NOT NULL, 
	address VARCHAR NOT NULL, 
	lease_id VARCHAR NOT NULL, 
	closed_unix FLOAT, 
	worker_gone BOOLEAN NOT NULL, 
	strict BOOLEAN DEFAULT 0 NOT NULL, 
	place VARCHAR DEFAULT 'device' NOT NULL, 
	parked_unix FLOAT, 
	parked_mib JSON DEFAULT '[]' NOT NULL, 
	left_worker JSON, 
	source_gone BOOLEAN DEFAULT 0 NOT NULL, 
	gang VARCHAR DEFAULT '' NOT NULL, 
	part INTEGER DEFAULT '0' NOT NULL, 
	project VARCHAR DEFAULT 'default' NOT NULL, 
	isolated BOOLEAN DEFAULT 1 NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "sessions" VALUES('s1','ann','','','node1','["node1/0"]','abababababababababababababababababababababababababababababababab','attached','',1,'node1:1','l1',NULL,0,0,'device',NULL,'[]',NULL,0,'',0,'default',1);
INSERT INTO "sessions" VALUES('s2','bob','','','node1','["node1/0"]','abababababababababababababababababababababababababababababababab','parked','release',1,'node1:1','',NULL,0,0,'device',1700001000.0,'[]',NULL,0,'',0,'default',1);
INSERT INTO "sessions" VALUES('s3','eve','','','node1','["node1/0"]','abababababababababababababababababababababababababababababababab','attached','',1,'node1:1','l3',NULL,0,0,'device',NULL,'[]',NULL,0,'',0,'default',1);
INSERT INTO "sessions" VALUES('s4','bob','','','node1','["node1/0"]','abababababababababababababababababababababababababababababababab','closed','release',1,'node1:1','',1700001000.0,1,0,'device',NULL,'[]',NULL,0,'',0,'default',1);
CREATE TABLE steps (
	number BIGINT NOT NULL, 
	at_unix FLOAT NOT NULL, 
	event VARCHAR NOT NULL, 
	checkpoint BOOLEAN NOT NULL, 
	detail BLOB NOT NULL, 
	PRIMARY KEY (number)
);
CREATE TABLE texts (
	sha256 VARCHAR NOT NULL, 
	text TEXT NOT NULL, 
	PRIMARY KEY (sha256)
);
CREATE TABLE tokens (
	id VARCHAR NOT NULL, 
	subject VARCHAR NOT NULL, 
	role VARCHAR NOT NULL, 
	sha256 VARCHAR NOT NULL, 
	created_unix FLOAT NOT NULL, 
	revoked_unix FLOAT, 
	PRIMARY KEY (id)
);
INSERT INTO "tokens" VALUES('f60fd4650178','ann','user','56a1d74a5d3d3b481f2d4c34d5ae21270053fb4b5b811c5c086073c0e260c8a8',1.79531458597214055054e+09,NULL);
CREATE TABLE waits (
	number INTEGER NOT NULL, 
	ask VARCHAR NOT NULL, 
	user VARCHAR NOT NULL, 
	project VARCHAR NOT NULL, 
	milli BIGINT NOT NULL, 
	from_ms BIGINT NOT NULL, 
	to_ms BIGINT, 
	PRIMARY KEY (number)
);
CREATE INDEX journal_session ON journal (session_id);
CREATE INDEX journal_lease ON journal (lease_id);
CREATE TRIGGER journal_no_update BEFORE UPDATE ON journal BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END;
CREATE TRIGGER journal_no_delete BEFORE DELETE ON journal BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END;
CREATE INDEX charges_time ON charges (to_ms, from_ms);
CREATE INDEX charges_lease ON charges (lease_id);
CREATE INDEX journal_time ON journal (at_unix);
CREATE INDEX steps_checkpoint ON steps (number) WHERE checkpoint IS 1;
CREATE INDEX steps_time ON steps (at_unix);
CREATE INDEX capacity_time ON capacity (to_ms, from_ms);
CREATE INDEX waits_ask ON waits (ask);
CREATE INDEX waits_time ON waits (to_ms, from_ms);
CREATE TRIGGER steps_no_update BEFORE UPDATE ON steps BEGIN SELECT RAISE(ABORT, 'the steps are append-only'); END;
CREATE TRIGGER steps_no_delete BEFORE DELETE ON steps WHEN NOT EXISTS (SELECT 1 FROM steps WHERE checkpoint AND number > OLD.number) BEGIN SELECT RAISE(ABORT, 'a step may be dropped only behind a later checkpoint'); END;
COMMIT;
