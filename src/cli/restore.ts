import path from 'node:path';
import { completeRestore } from '../compact/complete-restore.ts';
import { dataPaths, parseConfig } from '../config.ts';
import { openToGroup, resolveLakeGroup } from '../runtime/files/group-access.ts';
import { restoreBackup } from '../operate/backup/restore.ts';
import { createClock } from '../runtime/clock.ts';
import { AppError } from '../runtime/errors.ts';
import { createLogger } from '../runtime/logger.ts';
import { parseWords, type Command } from './command.ts';

const usage = 'tributary restore DIR --data NEW';

/**
 * `tributary restore DIR --data NEW`: makes a new data folder of the backup in DIR, with every event of it in the lake.
 */
export const restoreCommand: Command = {
  name: 'restore',
  usage,
  summary: 'make a new data folder of the backup in DIR',
  details: [
    "DIR      the folder that 'tributary backup' was given",
    '--data   the data folder to make; it must be named, and hold nothing yet',
  ],
  async run(args, { environment, answer, stop }) {
    const { values, positionals } = parseWords(args, ['DIR'], {}, usage);
    // The folder of the environment is the one in use.
    if (values.data === undefined)
      throw new AppError('usage', "'restore' needs --data with a new folder", { hint: `Usage: ${usage}` });
    // A folder that another restore has left unfinished is refused by every other command.
    const config = parseConfig({ ...environment, TRIBUTARY_DATA_DIR: values.data });
    const { dataDir } = config;
    const paths = dataPaths(dataDir);
    const logger = createLogger(config.logLevel, { role: 'restore' });
    const clock = createClock(config.clockOffsetSeconds);
    // Before anything is copied: a restore may take hours.
    const groupId = config.lakeGroup === undefined ? undefined : await resolveLakeGroup(config.lakeGroup);
    const { flushMaxBytes, flushMaxRows, sealMaxBytes, retentionMs, duckdbMemoryMb } = config;
    const options = {
      lakeDir: paths.lake,
      spoolDir: path.join(paths.spool, 'restore'),
      flushMaxBytes,
      flushMaxRows,
      sealMaxBytes,
      retentionMs,
      duckdbMemoryMb,
    };
    answer(
      await restoreBackup(path.resolve(positionals[0] ?? ''), dataDir, {
        completeLake: async ({ lakeVersion, madeAt }, tail) => {
          if (lakeVersion < 0 && tail === undefined) return;
          await completeRestore({ clock, logger, signal: stop }, tail, madeAt, options);
          // Readers need not wait for the first start.
          if (groupId !== undefined) await openToGroup(dataDir, paths.lake, groupId);
        },
        signal: stop,
        logger,
      }),
    );
  },
};
