import type { Clock } from '../runtime/clock.ts';
import type { Problem } from '../runtime/problems/problem.ts';
import { waitForLock } from '../runtime/files/lock.ts';
import type { Closers } from '../runtime/lifecycle.ts';
import type { Logger } from '../runtime/logger.ts';
import { findStoredSize } from '../runtime/store/open-store.ts';
import { openManifestKey } from './manifest.ts';
import { isExpired } from './reports.ts';
import { openSigningKeys, signingKeysPath } from './signed-links.ts';
import { openReportStore } from './store.ts';
import { createVerifiedFiles } from './verified-files.ts';

/** The report files and their keys. */
export type Reports = Awaited<ReturnType<typeof openReports>>;

interface ReportsOptions {
  readonly reportsDir: string;
  readonly keysDir: string;
  readonly linkTtlSeconds: number;
  /** Time to wait for another process that has the lock, ms; shorter in tests. */
  readonly lockWaitMs?: number;
}

const defaultLockWaitMs = 10_000;

/**
 * Opens the reports until the closers close. The lock of their folder excludes other processes of this machine. Errors:
 * `locked` if another process has it, `file_damaged`.
 */
export async function openReports(
  { clock, logger }: { readonly clock: Clock; readonly logger: Logger },
  { reportsDir, keysDir, linkTtlSeconds, lockWaitMs = defaultLockWaitMs }: ReportsOptions,
  closers: Closers,
) {
  const startedMs = clock.nowMs();
  const lock = await waitForLock(reportsDir, 'the export role', lockWaitMs);
  closers.add('reports lock', () => lock.release());
  const store = await openReportStore(clock, logger, { reportsDir, linkTtlSeconds });
  const keysPath = signingKeysPath(keysDir);
  const hadKeys = (await findStoredSize({ absolutePath: keysPath })) !== undefined;
  const hasLinks = store.list().some((job) => job.state === 'success');
  const keys = await openSigningKeys(keysDir, clock, logger, hasLinks);
  closers.add('link keys', () => keys.close());
  const hasManifests = store.list().some(({ basis }) => basis !== undefined);
  const manifestKey = await openManifestKey(keysDir, logger, hasManifests);
  closers.add('manifest key', () => manifestKey.close());

  /** The notice that a new key at this start rejects the links of earlier requests. */
  function lostKeys(): readonly Problem[] {
    const hasLostLinks = store
      .list()
      .some((job) => job.state === 'success' && (job.finishedMs ?? 0) < startedMs && !isExpired(job, clock.nowMs()));
    if (hadKeys || !hasLostLinks) return [];
    return [
      {
        code: 'link_keys_renewed',
        message: `${keysPath} was missing at the start and was created again; earlier links are rejected`,
        action:
          'Restore the file from a backup, or ask users to get the status of their exports again, which returns new links.',
      },
    ];
  }

  return {
    store,
    keys,
    manifestKey,
    files: createVerifiedFiles(store.objects, logger),
    problems: (): readonly Problem[] => [...keys.problems(), ...manifestKey.problems()],
    lostKeys,
  };
}
