import path from 'node:path';
import { dataPaths, parseConfig } from '../config.ts';
import { openToGroup, resolveLakeGroup } from '../runtime/files/group-access.ts';
import { restoreBackup } from '../admin/backup/restore.ts';
import { createClock } from '../runtime/clock.ts';
import { createLogger } from '../runtime/logger.ts';
import { runAudited } from './audited-commands.ts';
import { assertInFolder } from './backup.ts';
import { defineCommand } from './command.ts';
import { folder, required } from './option-specs.ts';

export const restoreCommand = defineCommand({
  name: 'restore',
  summary: 'restore the backup in DIR to a new data folder',
  arguments: { DIR: folder('backup folder') },
  // The folder of the environment is the one in use.
  options: { data: required(folder('data folder to create; must be empty or missing', 'NEW')) },
  examples: ['restore /mnt/backup/tributary --data /srv/tributary/restored'],
  async run({ DIR: dir, data }, { environment, printMessage, stop: signal }) {
    // Other commands refuse the folder of an unfinished restore; this one continues it.
    const config = parseConfig({ ...environment, TRIBUTARY_DATA_DIR: data });
    assertInFolder(config);
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
    const restored = await restoreBackup(path.resolve(dir), dataDir, {
      completeLake: async ({ lakeVersion, madeAt }, tail) => {
        if (lakeVersion < 0 && tail === undefined) return;
        // Loads the datasets, which the restore has just copied.
        const { completeRestore } = await import('../compact/complete-restore.ts');
        await completeRestore({ clock, logger, signal }, tail, madeAt, options);
        if (groupId !== undefined) await openToGroup(dataDir, paths.lake, groupId);
      },
      signal,
      logger,
    });
    // The folder has an audit log only now.
    const context = { config, paths, clock, environment, printMessage };
    return await runAudited('restore', {}, context, async () => restored);
  },
});
