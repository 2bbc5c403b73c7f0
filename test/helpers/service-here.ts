import { mkdirSync } from 'node:fs';
import { startStage } from '../../src/composition.ts';
import { dataPaths, parseConfig, type Environment } from '../../src/config.ts';
import { ensureLakeId, findFollowedStream } from '../../src/lake/identity.ts';
import { findFolderLocation } from '../../src/runtime/files/folder-id.ts';
import { createMetrics } from '../../src/runtime/metrics.ts';
import { openGuard } from '../../src/stream/guard.ts';
import { ownStream } from '../../src/stream/owner.ts';
import { openPublisher } from '../../src/stream/publisher.ts';
import { silentLogger, startTestNats } from './nats.ts';

/** A service whose stages all run in this process, composed as in the real processes, with a separate broker. */
export interface ServiceHere {
  readonly importPort: number;
  readonly exportPort: number;
  /** Publishes event lines as one message of the stream. */
  publish(lines: readonly object[]): Promise<void>;
  stop(): Promise<void>;
}

/**
 * Starts it on a data folder, which may already have apps and users. `settings` override the defaults; quotas are off.
 */
export async function startServiceHere(dataDir: string, settings: Environment = {}): Promise<ServiceHere> {
  mkdirSync(dataDir, { recursive: true });
  const nats = await startTestNats({ streamMaxBytes: 'none' });
  const { url, address } = nats.current();
  const config = parseConfig({
    TRIBUTARY_DATA_DIR: dataDir,
    TRIBUTARY_NATS_URL: url.replace('//', `//${address.user}:${address.password}@`),
    TRIBUTARY_S2S_PORT: '0',
    TRIBUTARY_API_PORT: '0',
    TRIBUTARY_FLUSH_AGE_MS: '50',
    TRIBUTARY_DUCKDB_MEMORY_MB: '512',
    TRIBUTARY_QUOTA_USER: 'off',
    TRIBUTARY_QUOTA_IP: 'off',
    ...settings,
  });
  const { streamName } = config;
  const paths = dataPaths(dataDir);
  const owner = await ownStream(await nats.connect(), {
    streamName,
    maxBytes: 32 * 1024 * 1024,
    lake: { id: await ensureLakeId(paths.lake), findStreamId: () => findFollowedStream(paths.lake) },
    claimFile: paths.claim,
    livenessFolder: paths.run,
    place: findFolderLocation(dataDir),
    replicas: 0,
    exclusive: true,
    logger: silentLogger,
  });
  const connection = await nats.connect();
  const guard = await openGuard(connection, { streamName, claimFile: paths.claim, logger: silentLogger });
  const publisher = openPublisher(connection, guard);
  const start = (role: Parameters<typeof startStage>[0]) =>
    startStage(role, { config, entry: '', logger: silentLogger, metrics: createMetrics() });
  const [imports, compact, exports] = [await start('ingest'), await start('compact'), await start('export')];
  for (const stage of [imports, exports]) stage.onService?.({ ready: true });
  return {
    importPort: imports.port ?? 0,
    exportPort: exports.port ?? 0,
    async publish(lines) {
      await publisher.publish(Buffer.from(lines.map((line) => `${JSON.stringify(line)}\n`).join('')), 5000);
    },
    async stop() {
      for (const stage of [exports, compact, imports]) await stage.stop();
      await guard.stop();
      await owner.stop();
      await nats.stop();
    },
  };
}
