import { once } from 'node:events';
import { findUnknownSettings } from '../config.ts';
import { AppError, describeError, isAppError } from '../runtime/errors.ts';
import { createLogger } from '../runtime/logger.ts';
import { startService, type Service } from '../service.ts';
import { roles, type Role, type ServiceOptions } from '../service/service-options.ts';
import { parseWords, resolveConfig, type Command } from './command.ts';

const usage = 'tributary start [--role ingest,compact,export] [--s2s-port N] [--api-port N] [--host H] [--data DIR]';

function parseRoles(text: string | undefined): readonly Role[] {
  if (text === undefined) return roles;
  const named = text.split(',');
  const unknown = named.find((name) => !roles.includes(name as Role));
  if (unknown !== undefined)
    throw new AppError('usage', `--role takes ${roles.join(', ')}, not '${unknown}'`, { hint: `Usage: ${usage}` });
  return roles.filter((role) => named.includes(role));
}

/** Starts the service; undefined when it was stopped before it was ready, which is no error. */
async function startUnlessStopped(options: ServiceOptions, stop: AbortSignal): Promise<Service | undefined> {
  try {
    return await startService({ ...options, signal: stop });
  } catch (error) {
    // Ctrl-C reaches the children as well: the errors of their starts are a consequence.
    if (!stop.aborted)
      throw isAppError(error)
        ? error
        : new AppError('start_failed', `the service did not start: ${describeError(error)}`, {
            cause: error,
            hint: `See whether ${options.config.dataDir} can be read and written, and whether its disk has room.`,
          });
    options.logger.info(
      { reason: isAppError(error, 'stopping') ? undefined : describeError(error) },
      'service stopped while it started',
    );
    return undefined;
  }
}

/** `tributary start`: runs the service until SIGTERM or SIGINT, which drain it; a second signal forces it down. */
export const startCommand: Command = {
  name: 'start',
  usage,
  summary: 'run the service until it is stopped',
  details: [
    '--role       only these parts of the service, with commas between',
    '--s2s-port   port of the import area (8080); 0: any free one',
    '--api-port   port of the export area (8081); 0: any free one',
    '--host       address that both listen on (127.0.0.1)',
    'Prints one line when it is ready. SIGTERM drains it, a second signal forces it.',
  ],
  async run(args, { environment, entry, answer, stop, force }) {
    const options = {
      role: { type: 'string' },
      's2s-port': { type: 'string' },
      'api-port': { type: 'string' },
      host: { type: 'string' },
    } as const;
    const { values } = parseWords(args, [], options, usage);
    const config = resolveConfig(
      environment,
      {
        TRIBUTARY_DATA_DIR: values.data,
        TRIBUTARY_S2S_PORT: values['s2s-port'],
        TRIBUTARY_API_PORT: values['api-port'],
        TRIBUTARY_HOST: values.host,
      },
      'any',
    );
    const logger = createLogger(config.logLevel, { role: 'supervisor' });
    for (const { variable, probably } of findUnknownSettings(environment))
      logger.warn({ variable, probably }, 'unknown setting is ignored');
    const service = await startUnlessStopped(
      { config, roles: parseRoles(values.role), entry, environment, logger, withOps: true, setsLakeAccess: true },
      stop,
    );
    if (service === undefined) return;
    force.addEventListener('abort', () => service.force());
    const { s2s, api, ops } = service;
    answer({ ready: true, s2s, api, ops });
    if (!stop.aborted) await once(stop, 'abort');
    logger.info({}, 'service drains');
    await service.stop();
    logger.info({}, 'service stopped');
  },
};
