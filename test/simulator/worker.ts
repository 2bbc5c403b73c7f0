import { createHash } from 'node:crypto';
import { mkdir, open, rm } from 'node:fs/promises';
import path from 'node:path';
import type { AttemptOutcome, WorkerOptions } from '../../src/export/jobs/worker-process.ts';
import type { WorkerPlan } from '../../src/export/jobs/worker-messages.ts';
import { describeError, isSystemError } from '../../src/runtime/errors.ts';
import { syncFolder } from '../../src/runtime/files/durable-file.ts';
import { activeWorld, type Process } from './world.ts';

/** Running workers, each with its parent process: the director kills them together or alone. */
export const workers = new Map<Process, Process | undefined>();

/** Returns the expected content of a request's file. */
export function contentFor(request: unknown): string {
  return `result of ${JSON.stringify(request)}\n`;
}

async function makeFiles({ request, folder, stem }: WorkerPlan): Promise<AttemptOutcome> {
  const work = path.join(folder, 'work');
  await mkdir(work, { mode: 0o700 });
  const content = contentFor(request);
  const name = `${stem}.csv`;
  const handle = await open(path.join(folder, name), 'wx', 0o600);
  try {
    await handle.writeFile(content);
    await handle.sync();
  } finally {
    await handle.close();
  }
  await rm(work, { recursive: true, force: true });
  await syncFolder(folder);
  return {
    kind: 'done',
    files: [
      { name, rows: 1, bytes: Buffer.byteLength(content), sha256: createHash('sha256').update(content).digest('hex') },
    ],
    basis: { version: 0, nextSinceVersion: '0', keptUntilSeconds: 0 },
    filesRead: 0,
  };
}

/**
 * The double of `runInWorker`: a separate simulated process that writes one file as the real worker does. It may be
 * killed. It may outlive its parent, as a real one does until it notices.
 */
export function runInWorker(plan: WorkerPlan, { onPercent, signal }: WorkerOptions): Promise<AttemptOutcome> {
  const world = activeWorld();
  if (world === undefined) throw new Error('only in a simulation');
  const parent = world.current();
  return new Promise((resolve) => {
    let outcome: AttemptOutcome = { kind: 'crashed', error: 'export worker exited: SIGKILL' };
    const worker = world.start(`worker of ${path.basename(path.dirname(plan.folder))}`, async () => {
      onPercent(50);
      outcome = await makeFiles(plan).catch((error: unknown): AttemptOutcome => ({
        kind: 'failed',
        reason: isSystemError(error, 'ENOSPC', 'EDQUOT') ? 'disk' : 'error',
        error: describeError(error),
      }));
      world.kill(worker);
    });
    workers.set(worker, parent);
    const abort = (): void => {
      outcome = { kind: 'aborted' };
      world.kill(worker);
    };
    signal.addEventListener('abort', abort, { once: true });
    worker.onEnd.add(() => {
      workers.delete(worker);
      signal.removeEventListener('abort', abort);
      resolve(outcome);
    });
  });
}
