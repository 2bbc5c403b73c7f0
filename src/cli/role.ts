import { startStage } from '../composition.ts';
import { connectStorage } from '../composition/storage.ts';
import { parseConfig } from '../config.ts';
import { AppError } from '../runtime/errors.ts';
import type { FolderIds } from '../runtime/files/folder-id.ts';
import { createLogger } from '../runtime/logger.ts';
import { createMetrics } from '../runtime/metrics.ts';
import { runRoleProcess } from '../runtime/processes/role-process.ts';
import { roles } from '../service/service-options.ts';
import { defineCommand } from './command.ts';
import { oneOf } from './option-specs.ts';

/** Runs a child of the supervisor. Internal: it needs the supervisor's channel and settings. */
export const roleCommand = defineCommand({
  name: 'role',
  isWithoutData: true,
  arguments: { ROLE: oneOf(roles, 'role to run') },
  async run({ ROLE: role }, { environment, entry }) {
    const config = parseConfig(environment);
    if (environment['TRIBUTARY_FOLDERS'] === undefined)
      throw new AppError('usage', "'role' is an internal command of the service", {
        hint: "Use 'tributary start --role ROLE'.",
      });
    await connectStorage(config);
    const logger = createLogger(config.logLevel, { role, process: environment['TRIBUTARY_PROCESS'] ?? role });
    const metrics = createMetrics();
    const folders = JSON.parse(environment['TRIBUTARY_FOLDERS']) as FolderIds;
    const closed = environment['TRIBUTARY_CLOSED'];
    const hostId = environment['TRIBUTARY_HOST_ID'];
    const composition = { config, entry, logger, metrics, folders, closed, hostId };
    return runRoleProcess(() => startStage(role, composition), metrics, logger);
  },
});
