/**
 * How much a problem hurries: `blocking`, imports are rejected or will be soon; `degraded`, events are accepted and some
 * work waits; `transient`, the service recovers without help; `warning`, everything works.
 */
export type Urgency = 'blocking' | 'degraded' | 'transient' | 'warning';

interface ProblemKind {
  readonly urgency: Urgency;
  /** One sentence, for docs/reference/problems.md. */
  readonly about: string;
  /** The operator's next step, for docs/reference/problems.md. */
  readonly action: string;
}

const kind = (urgency: Urgency, about: string, action: string): ProblemKind => ({ urgency, about, action });
const blocking = kind.bind(undefined, 'blocking');
const degraded = kind.bind(undefined, 'degraded');
const transient = kind.bind(undefined, 'transient');
const warning = kind.bind(undefined, 'warning');

/** The closed list of codes of problems and warnings, which operators' rules may match. */
export const problemTable = {
  access_missing: blocking(
    '`access.json` is missing. Requests are rejected.',
    'Restore it from a backup, set `TRIBUTARY_DATA_DIR` to the right folder, or add apps and users.',
  ),
  audit_unwritable: degraded(
    'Entries of the audit log cannot be written. They wait in memory, up to a limit.',
    'Free space on the disk of the data folder, or repair its permissions. The entries are then written.',
  ),
  broker_store_write_failed: blocking(
    'nats-server cannot write its store.',
    'Free space on its disk or repair the disk. The service then restarts nats-server.',
  ),
  broker_unresponsive: blocking(
    'nats-server runs but does not respond.',
    'Wait if its disk or the machine is stalled. Otherwise end it with `kill -9`; the service restarts it.',
  ),
  broker_permission_denied: blocking(
    'The broker denies an operation: the credentials, a permission, JetStream or storage is missing.',
    "Follow `tributary status`: change the broker's configuration, `TRIBUTARY_NATS_URL` or `TRIBUTARY_STREAM_MAX_BYTES`.",
  ),
  broker_unreachable: blocking(
    'The broker does not respond, or accepts no events.',
    'Wait if it restarts. Otherwise check its disk and its log lines, or the cluster of `TRIBUTARY_NATS_URL`.',
  ),
  broker_store_replaced: blocking(
    "Files of the broker's store were removed or replaced while the service ran.",
    'Check that the data folder is the right one, then restart the service.',
  ),
  broker_ack_timeout: blocking(
    'The broker does not acknowledge events in time. Imports are rejected, and clients retry.',
    'Check whether the disk of its store is slow, failing or full.',
  ),
  stream_claim_missing: blocking(
    "`stream-claim.json`, the folder's claim on the stream, is missing or damaged. Imports are rejected.",
    'Restart the service, which writes the file again.',
  ),
  descriptors_exhausted: blocking(
    'A process has no file descriptors left and refuses connections.',
    'Close client connections, or raise `LimitNOFILE` and restart.',
  ),
  data_folder_replaced: blocking(
    'The data folder was moved, removed or replaced while the service ran.',
    'Move the original folder back, or restart the service on the new folder.',
  ),
  lake_disk_low: blocking(
    "Free space on the lake's disk is below `TRIBUTARY_DISK_RESERVE_BYTES`.",
    'Free space. On a full disk, events wait in the stream. Imports are rejected once the stream is full.',
  ),
  process_crash_looping: blocking(
    'A process exits again and again.',
    'Read the log lines of this process, and the lines before them. The problem ends after a minute without an exit.',
  ),
  reports_disk_low: blocking(
    'Free space on the disk of the reports is below `TRIBUTARY_DISK_RESERVE_BYTES`.',
    'Free space. On a full disk, exports wait up to `TRIBUTARY_EXPORT_TIMEOUT_MS`, then fail.',
  ),
  process_closed: blocking(
    'A process rejects every request because of another problem.',
    'Resolve that problem, which is also listed. The process then restarts.',
  ),
  data_folder_shared: blocking(
    'Another service runs on the same data folder. Imports are rejected.',
    'Stop one of the two.',
  ),
  service_crashed: blocking(
    'The service ended without being stopped.',
    'Start it. Check the end of its log, and the system log for lack of memory.',
  ),
  stream_disk_low: blocking(
    "Free space on the stream's disk is below `TRIBUTARY_DISK_RESERVE_BYTES`. Imports are rejected.",
    'Free space. Imports resume within a second.',
  ),
  stream_full: blocking(
    'The stream is full. Imports are rejected.',
    'Check that the compactor runs and can write the lake, or raise `TRIBUTARY_STREAM_MAX_BYTES` and restart.',
  ),
  stream_missing: blocking(
    'The stream was deleted from the broker. Imports are rejected.',
    "Wait: the service creates it again. If it lasts, allow the service's NATS account to create streams.",
  ),
  stream_taken: blocking(
    'Another service owns the stream now. This service rejects imports.',
    'Stop one of the two. If this one stays, restart it.',
  ),
  stream_unclaimed: blocking(
    'The stream has messages but no claim, and this lake has never read it. Imports are rejected.',
    "Set another `TRIBUTARY_STREAM`. If the messages are this lake's, run the `nats` command that `tributary status` shows.",
  ),
  stream_unsafe: blocking(
    'The settings of the stream were changed so that it could lose acknowledged events. Imports are rejected.',
    "Wait: the service restores them. If it lasts, allow the service's NATS account to update streams.",
  ),

  access_unreadable: degraded(
    'The access data cannot be read. The last valid content stays in use. If there is none since the start, requests are rejected.',
    'Restore `access.json` from a backup. The service reads it within a second.',
  ),
  broker_overloaded: degraded(
    'More events arrive than the broker can write. Some imports are rejected.',
    'Wait if it passes. Otherwise use a faster disk, or have clients send larger batches.',
  ),
  clock_behind_lake: degraded(
    "The lake has rows whose `available_at` is ahead of this machine's clock. Filters by it miss new rows.",
    'Set the clock if it is behind. Otherwise run `tributary lake repair`.',
  ),
  exports_unreadable: degraded(
    '`tributary status` cannot read the exports.',
    'Check the permissions of the data folder.',
  ),
  hosts_unreadable: degraded(
    '`tributary status` cannot list the hosts that share the bucket.',
    'Check the bucket, the credentials and their permissions.',
  ),
  seal_failed: degraded(
    'One or more [young files](../glossary.md#lake) could not be sealed. The service retries.',
    'If it lasts, run `tributary lake check` and restore the named files from a backup.',
  ),
  flush_failing: degraded(
    'Events are not written from the stream to the lake.',
    'Remove the cause that the message names, such as a full disk or a missing permission.',
  ),
  foreign_commit: degraded(
    'Another engine has changed a table. Its new rows wait in the stream, and exports read the version before the change.',
    'Stop that engine, then run `tributary lake repair`.',
  ),
  lake_unreadable: degraded('`tributary status` cannot read the lake.', 'Run `tributary lake check`.'),
  lake_unwritable: degraded(
    'The service cannot write the lake. Events wait in the stream.',
    'Check free space, mount options and the owner of the folders.',
  ),
  link_keys_unreadable: degraded(
    'The keys of download links cannot be read. No link works, at once or from the next start.',
    'Restore the named file from a backup, or remove it and run `tributary key rotate links`.',
  ),
  maintenance_failing: degraded(
    'A maintenance task of the lake fails. The service retries.',
    'Remove the cause that the message names, such as a full disk.',
  ),
  manifest_key_unreadable: degraded(
    'The key of manifests cannot be read. No manifest is served, at once or from the next start.',
    'Restore the named file from a backup, or remove it and restart the service.',
  ),
  record_missing: degraded(
    'A schedule, segment, webhook or the list of titles is missing, and no command has removed it.',
    'Restore it from a backup. To accept the loss, remove it by its command, or remove its file below `records/`.',
  ),
  session_key_unreadable: degraded(
    'The key of console sessions cannot be read. Users cannot sign in, or sessions end at the next start.',
    'Restore the named file from a backup, or run `tributary key rotate sessions`, which signs out all users.',
  ),
  stream_unreadable: degraded(
    '`tributary status` cannot read the stream.',
    'Wait for nats-server to restart, or check the cluster of `TRIBUTARY_NATS_URL`.',
  ),
  table_without_pipeline: degraded(
    'A table of the lake has no pipeline. It is not exported, sealed or erased.',
    'Restore its pipeline and row schema in `TRIBUTARY_DATASETS_DIR`, then restart.',
  ),
  secrets_key_missing: degraded(
    '`keys/secrets.key` is missing. Users can sign in only until the next start.',
    'Restore it before the restart, from the backup of `access.json`.',
  ),
  users_unreadable: degraded(
    'Secrets of users cannot be read. Requests of users get HTTP 500.',
    'Restore `access.json` and `keys/secrets.key` from the same backup.',
  ),
  supervisor_unresponsive: degraded(
    'The supervisor does not write its state.',
    'Check whether its process is stopped or its disk is full.',
  ),

  process_down: transient(
    'A process has exited.',
    'Wait: the supervisor restarts it. If it lasts, read the log lines of this process.',
  ),
  process_unresponsive: transient(
    'A process sends no heartbeat.',
    'Wait: the supervisor kills and restarts it after half a minute.',
  ),
  starting: transient('The service is starting.', 'Wait a few seconds.'),
  stopping: transient('The service is stopping.', 'No action needed.'),

  user_agent_parser_failed: warning(
    'The parser of User-Agents fails. Events are stored without device and browser.',
    'Report the error. Run `tributary lake enrich` after an upgrade.',
  ),
  stream_replica_behind: warning(
    'A server of the cluster is offline, or lacks messages of the stream. Events are stored with fewer copies.',
    'Start the server, or check its disk and network.',
  ),
  stream_replicas_missing: warning(
    'The stream has fewer copies than `TRIBUTARY_STREAM_REPLICAS`: the cluster has too few servers.',
    'Add servers to the cluster, then restart the service.',
  ),
  broker_sync_unsafe: degraded(
    'A server of the cluster acknowledges events before its fsync: a power failure of all servers could lose them.',
    'Set `sync_interval: always` in the `jetstream` block of its configuration and restart it.',
  ),
  broker_sync_unchecked: warning(
    'The service does not know whether the servers of the cluster fsync before they acknowledge.',
    'Set `sync_interval: always` on every server, and `TRIBUTARY_NATS_SYSTEM_URL` so that the service checks it.',
  ),
  broker_clock_ahead: warning(
    "The broker's clock is more than two seconds ahead. The watermark is not published, and schedules wait.",
    'Synchronize both machines with a time server.',
  ),
  enrichment_failing: warning(
    'Addresses or User-Agents could not be looked up. Events are stored without the result.',
    'Remove the cause, such as low memory, then run `tributary lake enrich`.',
  ),
  erased_ids_damaged: warning(
    '`lake/erased-ids.parquet` is missing or damaged. Loads and erasures are rejected.',
    'Restore it from a backup. Without one, run `tributary lake repair --accept-loss`.',
  ),
  events_failed: warning(
    'Events could not be written to the lake and are kept as failed events.',
    'Run `tributary failed list`. Fix the cause and run `tributary failed replay`, or [save and drop them](../watch.md#failed-events).',
  ),
  export_met_damage: warning(
    'An export failed on a damaged file of the lake.',
    'Run `tributary lake check`, restore the named files from a backup, and create the export again.',
  ),
  export_request_unreadable: warning(
    'An export request cannot be read and is not served.',
    'Restore its record from a backup, then restart the service.',
  ),
  geo_database_unreadable: warning(
    'The geo database cannot be read. Its last valid content stays in use, if there is one.',
    'Replace the MMDB file, then run `tributary lake enrich`.',
  ),
  dedupe_keys_lost: warning(
    'Idempotency-Keys of a damaged lake file are unknown. Retries with them may be stored twice.',
    'Run `tributary lake check`, restore the file from a backup, then restart the service.',
  ),
  expiry_held: warning(
    "The machine's clock is ahead of the days that rows and the running time confirm. Age limits wait.",
    'Check the clock. If it is right, run `tributary lake expire`. See [age limits](../keep.md#age-limits).',
  ),
  link_keys_renewed: warning(
    'The keys of download links were missing and were created again. Older links are rejected.',
    'Restore the named file from a backup, or have users get the state of their exports again, which returns new links.',
  ),
  merge_paused: warning(
    'The sealed files of past days are not merged. All rows stay readable; queries open more files.',
    'Remove the cause that `tributary status` names, then restart the service. See [merged days](../lake.md#merged-days).',
  ),
  receipt_keys_unreadable: warning(
    'The keys of receipts cannot be read. Imports return no receipts, at once or from the next start.',
    'Restore `keys/receipts.json`. Otherwise remove it and restart; earlier receipts then need a saved public key.',
  ),
  report_file_damaged: warning(
    'A report file is damaged and cannot be downloaded.',
    'Restore it from a backup, or have the user create the export again.',
  ),
  schedule_unreadable: warning(
    'A schedule cannot be read and creates no exports.',
    'Restore its record from a backup, or delete and recreate the schedule.',
  ),
  sealed_columns_missing: warning(
    'An upgrade added columns that sealed files lack. The service rewrites these files until about the time in the message.',
    'Until then, [read columns by name](../lake.md#new-columns). Free space if `tributary status` asks for it. Check a named file with `tributary lake check`.',
  ),
  stream_fault: warning(
    'The stream was damaged, purged or created again, or the lake was restored from a backup. Acknowledged events may be missing.',
    "Check nats-server's log and disk. Have clients resend the requests that `tributary status` describes.",
  ),
  stream_repaired: warning(
    'Another NATS client changed or deleted the stream. The service repaired it.',
    'Find that client and stop it. The warning `stream_fault` reports lost messages.',
  ),
  delivery_failing: warning(
    'An export cannot be delivered to its destination.',
    'Check the destination, its secret and `TRIBUTARY_DELIVERY_ALLOW`. It is retried until the export expires.',
  ),
  webhook_unreadable: warning(
    'A webhook cannot be read and receives no messages.',
    'Restore its record and `keys/webhooks.key` from one backup, or delete and recreate it.',
  ),
} as const satisfies Readonly<Record<string, ProblemKind>>;
