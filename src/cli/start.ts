import { once } from 'node:events';
import { connectStorage } from '../composition/storage.ts';
import { findUnknownSettings } from '../config.ts';
import { AppError, describeError, isAppError } from '../runtime/errors.ts';
import { createLogger } from '../runtime/logger.ts';
import { startService, type Service } from '../service.ts';
import { roles, type Role, type ServiceOptions } from '../service/service-options.ts';
import { resolveConfig, defineCommand } from './command.ts';
import { parsed, failUsage, text } from './option-specs.ts';

function parseRoles(list: string): readonly Role[] {
  const named = list.split(',');
  const unknown = named.find((name) => !roles.some((role) => role === name));
  if (unknown !== undefined) failUsage(`--role must be one of ${roles.join(', ')}, not '${unknown}'`);
  return roles.filter((role) => named.includes(role));
}

/** Starts the service; undefined if it was stopped before it was ready. */
async function startUnlessStopped(options: ServiceOptions, stop: AbortSignal): Promise<Service | undefined> {
  try {
    return await startService({ ...options, signal: stop });
  } catch (error) {
    // Ctrl-C reaches the children too, so their starts fail.
    if (!stop.aborted)
      throw isAppError(error)
        ? error
        : new AppError('start_failed', `the service did not start: ${describeError(error)}`, {
            cause: error,
            hint: `Check the permissions of ${options.config.dataDir} and the free space on its disk.`,
          });
    options.logger.info(
      { reason: isAppError(error, 'stopping') ? undefined : describeError(error) },
      'service stopped during start',
    );
    return undefined;
  }
}

export const startCommand = defineCommand({
  name: 'start',
  summary: 'run the service until it is stopped',
  details: ['Prints one line when ready. SIGTERM drains the service, a second signal forces it to exit.'],
  options: {
    role: parsed('roles to run, comma-separated (all)', roles.join(','), parseRoles),
    s2sPort: text('port of the import area (8080); 0 for any free port', 'N'),
    apiPort: text('port of the export area (8081); 0 for any free port', 'N'),
    host: text('listen address of both ports (127.0.0.1)', 'H'),
  },
  examples: ['start', 'start --data /srv/tributary/data --host 0.0.0.0', 'start --role export --api-port 9081'],
  async run({ role: named = roles, s2sPort, apiPort, host, data }, { environment, entry, printResult, stop, force }) {
    const config = resolveConfig(
      environment,
      { TRIBUTARY_DATA_DIR: data, TRIBUTARY_S2S_PORT: s2sPort, TRIBUTARY_API_PORT: apiPort, TRIBUTARY_HOST: host },
      'any',
    );
    await connectStorage(config);
    const logger = createLogger(config.logLevel, { role: 'supervisor' });
    for (const { variable, probably } of findUnknownSettings(environment))
      logger.warn({ variable, probably }, 'unknown setting ignored');
    const service = await startUnlessStopped(
      { config, roles: named, entry, environment, logger, withOps: true, setsLakeAccess: true },
      stop,
    );
    if (service === undefined) return;
    force.addEventListener('abort', () => service.force());
    const { ready, s2s, api, ops } = service;
    printResult({ ready, s2s, api, ops });
    if (!stop.aborted) await once(stop, 'abort');
    logger.info({}, 'service draining');
    await service.stop();
    logger.info({}, 'service stopped');
  },
});
