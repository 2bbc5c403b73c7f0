import path from 'node:path';
import { dataPaths, parseConfig } from '../config.ts';
import { openToGroup, resolveLakeGroup } from '../runtime/files/group-access.ts';
import { restoreBackup } from '../operate/backup/restore.ts';
import { createClock } from '../runtime/clock.ts';
import { createLogger } from '../runtime/logger.ts';
import { verb } from './command.ts';
import { folder, required } from './words.ts';

export const restoreCommand = verb({
  name: 'restore',
  summary: 'make a new data folder of the backup in DIR',
  words: { DIR: folder("the folder that 'tributary backup' was given") },
  // The folder of the environment is the one in use.
  options: { data: required(folder('the data folder to make; it must be named, and hold nothing yet', 'NEW')) },
  examples: ['restore /mnt/backup/tributary --data /srv/tributary/restored'],
  async run({ DIR: dir, data }, { environment, stop: signal }) {
    // Not opened as by other commands, which refuse the folder of an unfinished restore.
    const config = parseConfig({ ...environment, TRIBUTARY_DATA_DIR: data });
    const { dataDir } = config;
    const paths = dataPaths(dataDir);
    const logger = createLogger(config.logLevel, { role: 'restore' });
    const clock = createClock(config.clockOffsetSeconds);
    // Fails before a copy that may take hours.
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
    return restoreBackup(path.resolve(dir), dataDir, {
      completeLake: async ({ lakeVersion, madeAt }, tail) => {
        if (lakeVersion < 0 && tail === undefined) return;
        // It loads the datasets, which the restore has just copied.
        const { completeRestore } = await import('../compact/complete-restore.ts');
        await completeRestore({ clock, logger, signal }, tail, madeAt, options);
        if (groupId !== undefined) await openToGroup(dataDir, paths.lake, groupId);
      },
      signal,
      logger,
    });
  },
});
