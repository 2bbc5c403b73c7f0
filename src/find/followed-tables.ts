import path from 'node:path';
import { events, importDatasets } from '../datasets/dataset.ts';
import type { DatasetTable } from '../lake/find/find-rows.ts';
import { hasTable, tablePaths } from '../lake/lake.ts';
import { openLogFollower, type LogFollower } from '../lake/log/log-follower.ts';
import { commitName, logFolder } from '../lake/log/log-files.ts';
import { isAppError } from '../runtime/errors.ts';
import { exists } from '../runtime/files/file-checks.ts';

interface LakePosition {
  /** Of the events table; -1: it does not exist. */
  readonly version: number;
  /** Undefined: no stream was read yet. */
  readonly streamId: string | undefined;
  readonly position: number;
  /** Number of failed events in the log. */
  readonly failed: number;
}

/** The tables of imported events, followed by commit. For one caller at a time. */
export interface FollowedTables {
  /** Returns the newest version of each existing table, the events table first. */
  read(): Promise<readonly DatasetTable[]>;
  readPosition(): Promise<LakePosition>;
}

/**
 * Returns whether the follower has the newest version: the commits after its own may be trimmed, then its own is, too.
 * Ignores foreign commits.
 */
async function refresh(follower: LogFollower, tableDir: string): Promise<boolean> {
  try {
    await follower.refresh();
  } catch (error) {
    if (isAppError(error, 'log_damaged')) return false;
    if (!isAppError(error, 'foreign_commit')) throw error;
  }
  return exists(path.join(logFolder(tableDir), commitName(follower.state.version)));
}

/** Errors of its reads: those of `openLogFollower`. */
export function createFollowedTables(lakeDir: string): FollowedTables {
  const followers = new Map<string, LogFollower>();

  async function open(dataset: (typeof importDatasets)[number]): Promise<LogFollower | undefined> {
    const { table: tableDir } = tablePaths(lakeDir, dataset);
    const known = followers.get(dataset.table);
    if (known !== undefined && (await refresh(known, tableDir))) return known;
    if (!(await hasTable(lakeDir, dataset))) return undefined;
    const opened = await openLogFollower(tableDir);
    followers.set(dataset.table, opened);
    return opened;
  }

  return {
    async read() {
      const tables: DatasetTable[] = [];
      for (const dataset of [events, ...importDatasets.filter((other) => other !== events)]) {
        const follower = await open(dataset);
        if (follower !== undefined) tables.push({ dataset, snapshot: follower.snapshot() });
      }
      return tables;
    },
    async readPosition() {
      const follower = await open(events);
      const { epoch, totals } = follower?.lake() ?? {};
      return {
        version: follower?.state.version ?? -1,
        streamId: epoch?.streamId,
        position: epoch?.position ?? 0,
        failed: totals?.failed ?? 0,
      };
    },
  };
}
