import { describeError } from '../runtime/errors.ts';
import { findStamp } from '../runtime/files/file-stamp.ts';
import { openGeoDatabase, type GeoDatabase } from './geo-database.ts';

/** The geo database of a file that others may replace. */
export interface WatchedDatabase {
  /** What was read last; undefined while nothing could be. */
  current(): GeoDatabase | undefined;
  /** Why the newest reading failed; undefined when it did not. */
  fault(): string | undefined;
  /** Reads the file again when it has changed; returns whether another database is in use now. */
  refresh(): Promise<boolean>;
}

function look(file: string): string | undefined {
  try {
    return findStamp(file);
  } catch {
    // The reading says what is wrong.
    return undefined;
  }
}

/**
 * Reads the database of a file. Never fails: one that cannot be read leaves the one before in use, if there was one,
 * and is read again once its file has changed.
 */
export async function openWatchedDatabase(file: string): Promise<WatchedDatabase> {
  let stamp: string | undefined;
  let database: GeoDatabase | undefined;
  let fault: string | undefined;

  async function read(): Promise<boolean> {
    // Before the file is read: what is written meanwhile is read at the next look.
    stamp = look(file);
    try {
      database = await openGeoDatabase(file);
      fault = undefined;
      return true;
    } catch (error) {
      fault = describeError(error);
      return false;
    }
  }

  await read();
  return {
    current: () => database,
    fault: () => fault,
    refresh: async () => look(file) !== stamp && (await read()),
  };
}
