import { openAccessReader } from '../access/store.ts';
import { dataPaths } from '../config.ts';
import { maskOfLake } from '../datasets/event-id.ts';
import { startIngest } from '../ingest/ingest.ts';
import { holdsEvents } from '../lake/files/data-file.ts';
import { openReceiptKeys } from '../receipts/receipt-keys.ts';
import { startDiskWatch } from '../runtime/files/disk-watch.ts';
import { exists } from '../runtime/files/file-checks.ts';
import { areSameFolders } from '../runtime/files/folder-id.ts';
import type { Stage } from '../runtime/processes/role-process.ts';
import { findKeptClaim } from '../stream/claim.ts';
import { createEventQueryClient } from '../stream/event-query-channel.ts';
import { createVerifiedPublisher, openPublisher } from '../stream/publisher.ts';
import { startPublishProbe } from '../stream/publish-probe.ts';
import type { StreamPublisher } from '../stream/stream.ts';
import { openRefusalsAndLive } from './client-diagnostics.ts';
import { openHealth, openStream, withProblems, type CompositionContext } from './context.ts';

/** Starts import, which reads the access data and publishes to the stream. */
export async function startIngestStage(compositionContext: CompositionContext): Promise<Stage> {
  const { config, logger, metrics, clock, closers, tracing } = compositionContext;
  const paths = dataPaths(config.dataDir);
  const access = await openAccessReader(paths, logger, {
    isExpected: () => holdsEvents(paths.lake),
    isOwn: () => areSameFolders(compositionContext.folders ?? {}),
    withUsers: false,
  });
  closers.add('access', () => access.close());
  // Only the embedded broker has a folder here; its disk is watched.
  const disk = (await exists(paths.nats))
    ? await startDiskWatch(paths.nats, config.diskReserveBytes, logger)
    : undefined;
  closers.add('disk watch', () => disk?.stop());
  const { connection, guard, findProblems } = await openStream(compositionContext, 'ingest');
  const opened = openPublisher(connection, guard, config.streamCompression);
  const probe = startPublishProbe(connection, { streamName: config.streamName, claimFile: paths.claim }, opened);
  closers.add('publish probe', () => probe.stop());
  const own = createVerifiedPublisher(opened, compositionContext.folders ?? {}, paths.nats);
  const publisher: StreamPublisher = {
    ...own,
    publish(payload, timeoutMs, traceparents) {
      disk?.expectWrites();
      return own.publish(payload, timeoutMs, traceparents);
    },
  };
  const isDiskLow = (): boolean => disk?.isLow() ?? false;
  const { sender, onService: onHosts } = openRefusalsAndLive(compositionContext, connection, isDiskLow);
  const receiptKeys = await openReceiptKeys(paths.keys, clock, logger);
  closers.add('receipt keys', () => receiptKeys.close());
  const { addRoutes, onService, drained } = await openHealth(compositionContext);
  const ask = createEventQueryClient(connection, config.streamName);
  // The supervisor has claimed the stream for this lake before it started this process.
  const keyMask = maskOfLake((await findKeptClaim(paths.claim))?.lake);
  const ingest = await startIngest(
    { access, publisher, ask, receiptKeys, clock, metrics, logger, isDiskLow, keyMask, tracing, ...sender, addRoutes },
    { host: config.host, port: config.s2sPort },
  );
  const watched = withProblems(ingest, [findProblems, () => access.problems()]);
  return {
    ...watched,
    stop: () => drained().then(() => watched.stop()),
    onService(view) {
      onService(view);
      onHosts(view);
    },
  };
}
