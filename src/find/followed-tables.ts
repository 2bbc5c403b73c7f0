import path from 'node:path';
import { events, importDatasets } from '../datasets/dataset.ts';
import type { DatasetTable } from '../lake/find/find-rows.ts';
import { hasTable, tablePaths } from '../lake/lake.ts';
import { openLogFollower, type LogFollower } from '../lake/log/log-follower.ts';
import { commitName, logFolder } from '../lake/log/log-files.ts';
import { isAppError } from '../runtime/errors.ts';
import { exists } from '../runtime/files/file-checks.ts';

/** How far the lake is in the stream. */
interface LakePosition {
  /** Of the table of the events; -1: there is none yet. */
  readonly version: number;
  /** The stream that the position is in; undefined: nothing has been read from one yet. */
  readonly streamId: string | undefined;
  readonly position: number;
  /** How many events count as failed. */
  readonly failed: number;
}

/** The tables that imported events are in, followed commit by commit. For one caller at a time. */
export interface FollowedTables {
  /** Reads on, and gives the newest version of each table that there is, that of the events first. */
  read(): Promise<readonly DatasetTable[]>;
  readPosition(): Promise<LakePosition>;
}

/**
 * Reads on; says whether what is known is the newest then. One who asks seldom may find that the commits after its own
 * are trimmed already: then that one is, too. What another engine has done to a table is passed over.
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

/** Creates the tables of a lake, none open yet. Errors of its reads: those of `openLogFollower`. */
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
