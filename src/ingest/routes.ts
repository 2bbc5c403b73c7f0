import type { ServerResponse } from 'node:http';
import type { FastifyReply } from 'fastify';
import { membersOf } from '../runtime/files/checksummed-json.ts';
import type { AccessReader } from '../access/access.ts';
import { importMethods } from '../datasets/dataset.ts';
import type { ReceiptKeys } from '../receipts/receipt-keys.ts';
import type { ImportResponses } from './responses.ts';
import type { EventLookup } from './event-lookup.ts';
import { findApp } from './find-app.ts';
import type { RefusalRecorder } from './refusal-recorder.ts';
import type { Fail, ImportHandler } from './import-handler.ts';
import type { Refusal } from './refusal.ts';
import { listErrorsIfRequested } from './validation-errors.ts';
import type { ImportServer } from './server.ts';

export interface RouteDependencies {
  readonly access: AccessReader;
  readonly imports: ImportHandler;
  readonly lookUp: EventLookup;
  readonly importResponses: ImportResponses;
  readonly refusals: RefusalRecorder;
  readonly fail: Fail;
  readonly receiptKeys?: ReceiptKeys | undefined;
}

const versionSegment = /^\/(v\d[^/?]*)(?:[/?]|$)/i;
const methodSegment = /^\/v1\/([^/?]+)/;
/** Routes that are called by GET. */
const questions = new Set(['event', 'live', 'receipt-key', 'refusals']);

/** Describes the refusal of a path without a route. Checks the API version before the method. */
export function refuseUnknownPath(path: string): Refusal {
  const version = versionSegment.exec(path)?.[1];
  if (version !== undefined && version !== 'v1') return { reason: 'version', detail: 'the API version must be v1' };
  const name = methodSegment.exec(path)?.[1] ?? '';
  if (importMethods.has(name) || name === 'events') return { reason: 'method', detail: 'the method is called by POST' };
  return { reason: 'method', detail: questions.has(name) ? 'the method is called by GET' : 'no such method' };
}

const idAppOf = ({ query }: { query: unknown }): unknown => membersOf(query)['idApp'];

const noReceiptKey: Refusal = { reason: 'unavailable', detail: 'the keys of receipts cannot be read' };

const takeOver = (reply: FastifyReply): ServerResponse => reply.hijack().raw;

export function addImportRoutes(server: ImportServer, dependencies: RouteDependencies, version: string): void {
  const { access, imports, lookUp, importResponses, refusals, fail, receiptKeys } = dependencies;

  // Requests whose address has not the usual form (import-handler.ts).
  for (const method of importMethods.keys())
    server.post(`/v1/${method}`, (request, reply) =>
      imports.handle(method, membersOf(request.query), request.raw, takeOver(reply)),
    );

  // Two methods that import nothing: neither reads a body.
  server.post('/v1/version', (_request, reply) => importResponses.send(takeOver(reply), JSON.stringify({ version })));
  server.post('/v1/test-app-access', (request, reply) => {
    const idApp = idAppOf(request);
    const app = findApp(access, idApp, request.raw);
    if ('reason' in app) importResponses.refuse(takeOver(reply), app, { idApp });
    else importResponses.accept(takeOver(reply));
  });

  server.get('/v1/event', (request, reply) => lookUp.handle(membersOf(request.query), request.raw, takeOver(reply)));

  server.post('/v1/events', (request, reply) =>
    lookUp.handleMany(membersOf(request.query), request.raw, takeOver(reply)),
  );

  server.get('/v1/receipt-key', (_request, reply) => {
    const keys = receiptKeys?.known() ?? [];
    if (keys.length > 0)
      importResponses.send(takeOver(reply), JSON.stringify({ algorithm: 'Ed25519', key: keys.at(-1), keys }));
    else importResponses.refuse(takeOver(reply), noReceiptKey, { idApp: undefined });
  });

  server.setNotFoundHandler((request, reply) => {
    const refusal = refuseUnknownPath(request.url);
    const idApp = idAppOf(request);
    importResponses.refuse(takeOver(reply), listErrorsIfRequested(request.raw, refusal), { idApp });
    const app = findApp(access, idApp, request.raw);
    if ('reason' in app) return;
    const [path = ''] = request.url.split('?');
    refusals.add({ app, refusal, head: request.raw, target: { path }, isValidation: false });
  });
  server.setErrorHandler((error, request, reply) =>
    fail(error, { request: request.raw, idApp: idAppOf(request), response: takeOver(reply) }),
  );
}
