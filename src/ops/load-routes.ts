import { spawn, type ChildProcess } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { tmpdir } from 'node:os';
import path from 'node:path';
import process from 'node:process';
import type { Writable } from 'node:stream';
import { text } from 'node:stream/consumers';
import { finished } from 'node:stream/promises';
import type { FastifyRequest } from 'fastify';
import { isKeyOf, membersOf } from '../runtime/files/checksummed-json.ts';
import { isOperatorToken } from '../access/secrets.ts';
import { datasets } from '../datasets/dataset.ts';
import { completionDescriptor } from '../runtime/files/input-file.ts';
import { makeWorkFolder, removeTree, writeWorkFile } from '../runtime/files/work-files.ts';
import type { OpsServerDependencies } from './ops-server.ts';

/**
 * `POST /api/load/v1/<dataset>` on the operator's address: streams the body, a file of CSV, JSON lines or Parquet, to a
 * process of the command `tributary load DATASET -`.
 *
 * Query: `app`, `maxBad`, `map` (JSON), `format`, and `allowEmpty` and `restoreErased` (true or false). Needs the
 * operator's token: `Authorization: Bearer TOKEN`. Status: 200 and 400 with the output of the command; 401; 404 for
 * another dataset; 409 during another load; 500 with Retry-After for other faults than those of the file and the query.
 * Crash: the command loads nothing until another pipe confirms that its input was complete, which a dead process or a
 * broken connection never does.
 */

/** Formats by Content-Type. Others are recognized by the bytes. */
const formats: Readonly<Record<string, string>> = {
  'text/csv': 'csv',
  'application/x-ndjson': 'ndjson',
  'application/vnd.apache.parquet': 'parquet',
};

/** Idle timeout of a client, ms: other loads wait for this one. */
const defaultIdleMs = 60_000;
const retryAfterSeconds = 5;

interface LoadRouteOptions {
  readonly entry: string;
  readonly dataDir: string;
  readonly keysDir: string;
  readonly idleMs?: number;
}

/** Options of the command by parameter of the query. */
const queryOptions = {
  app: 'app',
  maxBad: 'max-bad',
  map: 'map',
  format: 'format',
  allowEmpty: 'allow-empty',
  restoreErased: 'restore-erased',
} as const;
/** Boolean parameters: options without a value. */
const flags: readonly string[] = ['allowEmpty', 'restoreErased'];
type LoadQuery = Readonly<Partial<Record<keyof typeof queryOptions, string>>>;

function findUnknown(query: LoadQuery): string | undefined {
  const unknown = Object.keys(query).filter((word) => !Object.hasOwn(queryOptions, word));
  if (unknown.length === 0) return undefined;
  return `Unknown query parameters: ${unknown.join(', ')}. Expected: ${Object.keys(queryOptions).join(', ')}.`;
}

/** Returns the options of the command, which checks them. */
function toWords(query: LoadQuery, contentType: string, mapFile: string | undefined): string[] {
  const format = query.format ?? formats[contentType.split(';', 1)[0]?.trim() ?? ''];
  const loadQuery: LoadQuery = {
    ...query,
    ...(format === undefined ? {} : { format }),
    ...(mapFile && { map: mapFile }),
  };
  return Object.entries(loadQuery).flatMap(([word, value]) => {
    if (!isKeyOf(queryOptions, word) || (flags.includes(word) && value === 'false')) return [];
    const option = `--${queryOptions[word]}`;
    return flags.includes(word) && value === 'true' ? [option] : [`${option}=${value}`];
  });
}

function waitForRoom(stream: Writable): Promise<void> {
  return new Promise((resolve) => {
    const settle = (): void => {
      stream.off('drain', settle).off('close', settle);
      resolve();
    };
    stream.on('drain', settle).on('close', settle);
  });
}

/**
 * Streams the body to the command and confirms its end. An incomplete body kills the command. If the command ends early,
 * the rest of the body is dropped.
 */
async function passOn({ raw }: FastifyRequest, child: ChildProcess, idleMs: number): Promise<void> {
  const { stdin } = child;
  const completionPipe = child.stdio[completionDescriptor] as Writable;
  if (stdin === null) return;
  stdin.on('error', () => undefined);
  completionPipe.on('error', () => undefined);
  // The timeout counts only while the client is to send.
  raw.socket.setTimeout(idleMs);
  try {
    for await (const piece of raw) {
      if (!stdin.writable || stdin.write(piece)) continue;
      raw.socket.setTimeout(0);
      await waitForRoom(stdin);
      raw.socket.setTimeout(idleMs);
    }
  } catch {
    // The body is incomplete.
  } finally {
    raw.socket.setTimeout(0);
  }
  if (!raw.complete) return void child.kill('SIGKILL');
  stdin.end();
  await finished(stdin, { readable: false }).catch(() => undefined);
  completionPipe.end('.');
}

/** Replaces paths of the service in the output, which mean nothing to a client. */
function withoutPaths(output: string, folders: readonly string[]): string {
  const paths = folders.map((folder) =>
    JSON.stringify(folder)
      .slice(1, -1)
      .replaceAll(/[^\w/-]/g, '\\$&'),
  );
  const ofService = new RegExp(`(?:${paths.join('|')})(?:/[^\\s"':,;]*|(?![\\w-]|\\.\\w))`, 'g');
  return output.replaceAll(ofService, 'a file of the service').replaceAll('--map a file of the service', 'map');
}

function parseAnswer(output: string): unknown {
  const line = output.trim().split('\n').at(-1) ?? '';
  return line === '' ? undefined : JSON.parse(line);
}

interface LoadAnswer {
  readonly status: number;
  readonly body: unknown;
}

/** Returns 400 for faults of the file and the query, 500 for others, which may be retried. */
function toStatus(exitCode: number | null, body: unknown): number {
  if (exitCode === 0) return 200;
  const { refused, code } = membersOf(body);
  return refused !== undefined || code === 'usage' ? 400 : 500;
}

type LoadRequest = FastifyRequest<{ Params: { dataset: string }; Querystring: LoadQuery }>;

/** Runs the command on the body and returns after its end. */
async function runLoad(
  { entry, dataDir, idleMs = defaultIdleMs }: LoadRouteOptions,
  request: LoadRequest,
): Promise<LoadAnswer> {
  const { dataset } = request.params;
  const { map } = request.query;
  const folder = path.join(tmpdir(), `tributary-load-${randomUUID()}`);
  await makeWorkFolder(folder);
  try {
    const mapFile = map === undefined ? undefined : path.join(folder, 'map.json');
    if (mapFile !== undefined) await writeWorkFile(mapFile, map ?? '');
    const words = toWords(request.query, request.headers['content-type'] ?? '', mapFile);
    const command = [entry, 'load', dataset, '-', '--by-http', '--data', path.resolve(dataDir), ...words];
    const child = spawn(process.execPath, command, { stdio: ['pipe', 'pipe', 'pipe', 'pipe'] });
    const ended: Promise<(number | null)[]> = once(child, 'exit');
    // A process that cannot start rejects during the read of the body.
    ended.catch(() => undefined);
    const [output, errors] = [text(child.stdout), text(child.stderr)];
    await passOn(request, child, idleMs);
    const [code = null] = await ended;
    const folders = [folder, path.resolve(dataDir)];
    const body = parseAnswer(withoutPaths(await output, folders)) ?? {
      error: withoutPaths((await errors).trim(), folders) || 'The load ended without a result.',
    };
    return { status: toStatus(code, body), body };
  } finally {
    await removeTree(folder);
  }
}

/** Adds the route to the operator's address. One load runs at a time. */
export function addLoadRoute(options: LoadRouteOptions): OpsServerDependencies['addRoutes'] {
  let isLoading = false;
  return (server, keep) => {
    void server.register((scope, _options, done) => {
      // The body may be larger than memory.
      scope.removeAllContentTypeParsers();
      scope.addContentTypeParser('*', (_request, _payload, parsed) => parsed(null));
      scope.post<{ Params: { dataset: string }; Querystring: LoadQuery }>(
        '/api/load/v1/:dataset',
        { bodyLimit: Number.MAX_SAFE_INTEGER },
        async (request, reply) => {
          const token = /^Bearer (\S+)$/.exec(request.headers.authorization ?? '')?.[1];
          if (token === undefined || !(await isOperatorToken(options.keysDir, token)))
            return reply
              .code(401)
              .send({ error: "The operator's token is required. Run 'tributary key rotate operator' to create one." });
          const { dataset } = request.params;
          if (datasets.get(dataset)?.isLoadable !== true)
            return reply.code(404).send({ error: `Dataset ${dataset} does not exist, or does not accept files.` });
          const unknown = findUnknown(request.query);
          if (unknown !== undefined) return reply.code(400).send({ error: unknown });
          if (isLoading) return reply.code(409).send({ error: 'Another load is running. Retry when it has finished.' });
          isLoading = true;
          keep(request.raw.socket);
          const { status, body } = await runLoad(options, request).finally(() => {
            isLoading = false;
          });
          if (status === 500) void reply.header('retry-after', retryAfterSeconds);
          return reply.code(status).send(body);
        },
      );
      done();
    });
  };
}
