import { createHash } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { onTestFinished } from 'vitest';
import { openAccessReader } from '../../src/access/store.ts';
import { addUser } from '../../src/access/users.ts';
import type { WorkerPlan } from '../../src/export/jobs/worker-messages.ts';
import type { AttemptOutcome, RunAttempt } from '../../src/export/jobs/worker-process.ts';
import { startJobRunner, type JobRunner } from '../../src/export/jobs/scheduler.ts';
import type { ReportFile, ReportJob } from '../../src/reports/reports.ts';
import { openReportStore, type ReportStore } from '../../src/reports/store.ts';
import { createLogger } from '../../src/runtime/logger.ts';
import { createLeases, type Leases } from '../../src/runtime/store/leases.ts';
import type { ObjectStore } from '../../src/runtime/store/object-store.ts';
import { connectFolders, localFiles } from '../../src/runtime/store/open-store.ts';
import { openS3Bucket } from '../../src/runtime/store/s3-bucket.ts';
import { createS3Store } from '../../src/runtime/store/s3-store.ts';
import type { FakeS3 } from './fake-s3.ts';
import { testFolder } from './folder.ts';
import { formatRequest } from './format-request.ts';
import { forwardTo, startS3Proxy, type S3Proxy } from './s3-proxy.ts';

const credentials = { accessKeyId: 'tester', secretAccessKey: 'secret' };
const logger = createLogger('silent');

export interface ExportHostOptions {
  readonly leaseMs?: number;
  readonly clock?: { nowMs(): number };
  readonly linkTtlSeconds?: number;
}

/** One of several hosts that share a bucket, in this process. Each has its own network and work folders. */
export interface ExportHost {
  /** Its data folder, whose objects are in the bucket. */
  readonly folder: string;
  readonly reportsDir: string;
  readonly leases: Leases;
  /** The objects of all reports. */
  readonly objects: ObjectStore;
  /** Opens the requests, as a start of the host does. `readFirst`: the newest ones, which are read first. */
  open(readFirst?: number): Promise<ReportStore>;
  readonly network: S3Proxy;
  /** Cuts the host off from the bucket, or connects it again. */
  cut(isCut: boolean): void;
}

/** Creates hosts that share the bucket of a server, until the test ends. */
export async function createExportHosts(
  server: FakeS3,
  count: number,
  { leaseMs = 15_000, clock = { nowMs: () => Date.now() }, linkTtlSeconds = 3600 }: ExportHostOptions = {},
): Promise<ExportHost[]> {
  const networks = await Promise.all(
    Array.from({ length: count }, async () => {
      const network = await startS3Proxy(forwardTo(server.endpoint));
      const limits = { callMs: 1000 };
      const { endpoint } = network;
      const bucket = await openS3Bucket({ bucket: 'lake', endpoint, pathStyle: true, credentials, limits });
      onTestFinished(() => bucket.close());
      const [folder, scratchFolder] = [testFolder(), testFolder()];
      const open = (below: string): ObjectStore =>
        createS3Store({ bucket, prefix: below === '' ? 'hosts/' : `hosts/${below}/`, scratchFolder });
      return { network, folder, open };
    }),
  );
  connectFolders(networks.map(({ folder, open }) => ({ folder, open, files: localFiles, filesFolder: folder })));
  onTestFinished(() => connectFolders([]));
  return networks.map(({ network, folder, open }, number) => {
    const reportsDir = path.join(folder, 'reports');
    return {
      folder,
      reportsDir,
      leases: createLeases(open('state'), { holder: `host ${number}`, leaseMs }),
      objects: open('reports'),
      open: (readFirst = 256) => openReportStore(clock, logger, { reportsDir, linkTtlSeconds, readFirst }),
      network,
      cut(isCut) {
        network.faultOf = () => (isCut ? { isDone: false, answer: 'cut' } : undefined);
      },
    };
  });
}

/** Opens the access data of one user, whose requests may run. */
export async function openTestAccess() {
  const folder = testFolder();
  const paths = { access: path.join(folder, 'access.json'), keys: path.join(folder, 'keys') };
  const { idUser } = await addUser(paths, { name: 'analyst', idAccount: 1, canExport: true });
  const access = await openAccessReader(paths, logger);
  onTestFinished(() => access.close());
  return { access, idUser };
}

/** Writes the only file of an attempt. */
export function writeResult({ folder, stem }: Pick<WorkerPlan, 'folder' | 'stem'>, text: string): ReportFile {
  const name = `${stem}.csv`;
  writeFileSync(path.join(folder, name), text);
  return { name, rows: 1, bytes: Buffer.byteLength(text), sha256: createHash('sha256').update(text).digest('hex') };
}

/** Returns the outcome of an attempt with one file. */
export function succeed(plan: WorkerPlan, text: string): AttemptOutcome {
  const basis = { version: 1, nextSinceVersion: '1-00000000', keptUntilSeconds: 1 };
  return { kind: 'done', files: [writeResult(plan, text)], basis, filesRead: 0 };
}

export interface RunnerHost extends ExportHost {
  readonly store: ReportStore;
  readonly runner: JobRunner;
  /** Requests that this host has ended. */
  readonly ended: ReportJob[];
  /** Called with the ids of requests that have ended, on any host. */
  readonly onEnd: Set<(id: number) => void>;
  create(): Promise<number>;
  stop(): Promise<void>;
}

/** Starts the runner of a host, until the test ends. */
export async function startRunnerHost(
  host: ExportHost,
  { access, idUser }: Awaited<ReturnType<typeof openTestAccess>>,
  runAttempt: RunAttempt,
  workers = 2,
): Promise<RunnerHost> {
  const store = await host.open();
  const ended: ReportJob[] = [];
  const onEnd: RunnerHost['onEnd'] = new Set();
  const { folder, leases } = host;
  const limits = { maxRows: 1, maxBytes: 1, singleFileMaxBytes: 1, partMaxBytes: 1, memoryMb: 1, threads: 1 };
  const folders = { lakeDir: folder, segmentsDir: folder, titlesDir: folder };
  const runner = startJobRunner(
    {
      store,
      access,
      clock: { nowMs: () => Date.now() },
      logger,
      leases,
      runAttempt,
      onEnd(job) {
        ended.push(job);
        for (const listener of onEnd) listener(job.id);
      },
      onDamage: () => undefined,
    },
    { workers, timeoutMs: 60_000, retentionMs: 0, limits, ...folders },
  );
  const following = store.follow((id, job) => {
    runner.onChange(id, job);
    if (job?.finishedMs !== undefined) for (const listener of onEnd) listener(id);
  });
  const stop = async (): Promise<void> => {
    await following.stop();
    await runner.stop();
  };
  onTestFinished(stop);
  await store.load(new AbortController().signal, () => runner.wake());
  return {
    ...host,
    store,
    runner,
    ended,
    onEnd,
    async create() {
      const job = await store.create({ idUser, idAccount: 1, event: 'customEvents', request: formatRequest() });
      runner.wake();
      return job.id;
    },
    stop,
  };
}
