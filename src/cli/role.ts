import { startStage } from '../app.ts';
import { parseConfig } from '../config.ts';
import { AppError } from '../runtime/errors.ts';
import type { FolderIds } from '../runtime/files/folder-id.ts';
import { createLogger } from '../runtime/logger.ts';
import { createMetrics } from '../runtime/metrics.ts';
import { runRoleProcess } from '../runtime/processes/role-process.ts';
import { roles } from '../service/service-options.ts';
import type { Command } from './command.ts';

/**
 * `tributary role ROLE`: what a child of the supervisor runs. Internal: it needs the supervisor's channel and settings.
 */
export const roleCommand: Command = {
  name: 'role',
  usage: 'tributary role ROLE',
  summary: '',
  async run([name], { environment, entry }) {
    const role = roles.find((known) => known === name);
    if (role === undefined) throw new AppError('usage', `'role' takes ${roles.join(', ')}, not '${name ?? ''}'`);
    const config = parseConfig(environment);
    if (environment['TRIBUTARY_FOLDERS'] === undefined)
      throw new AppError('usage', "'role' is what the service runs its processes with", {
        hint: "Use 'tributary start --role ROLE'.",
      });
    const logger = createLogger(config.logLevel, { role });
    const metrics = createMetrics();
    const folders = JSON.parse(environment['TRIBUTARY_FOLDERS']) as FolderIds;
    const closed = environment['TRIBUTARY_CLOSED'];
    return runRoleProcess(() => startStage(role, { config, entry, logger, metrics, folders, closed }), metrics, logger);
  },
};
