/** Spans of import requests, in the traces of their clients. */
import type { IncomingMessage } from 'node:http';
import type { App } from '../access/access.ts';
import type { ImportMethod } from '../datasets/field-schema.ts';
import type { Span, Tracing } from '../runtime/tracing/tracing.ts';
import type { ImportedLines } from './import-request.ts';
import { answerOf, type Refusal } from './refusal.ts';

interface StartedImport {
  readonly method: ImportMethod;
  readonly request: IncomingMessage;
}

/** Starts the span of a request; undefined unless it is sampled. */
export function startImportSpan(tracing: Tracing, { method, request }: StartedImport): Span | undefined {
  const span = tracing.startRequest(`POST /v1/${method}`, request.headers);
  span?.set({ 'http.request.method': 'POST', 'http.route': `/v1/${method}` });
  return span;
}

/** Ends the span of an accepted request. */
export function endAcceptedSpan(
  span: Span,
  { idApp, kind, count }: Pick<App, 'idApp'> & Pick<ImportedLines, 'kind' | 'count'>,
): void {
  const ofRequest = { 'tributary.app.id': idApp, 'tributary.kind': kind, 'tributary.events': count };
  span.end({ 'http.response.status_code': 200, ...ofRequest });
}

/** Ends the span of a refused request. Only faults of the service mark it as failed. `app`: if the token is right. */
export function endRefusedSpan(span: Span | undefined, { reason }: Pick<Refusal, 'reason'>, app?: App): void {
  if (span === undefined) return;
  const { status } = answerOf(reason);
  const ofApp = app === undefined ? {} : { 'tributary.app.id': app.idApp };
  const attributes = { 'http.response.status_code': status, 'tributary.refusal.reason': reason, ...ofApp };
  span.end(attributes, status >= 500 ? reason : undefined);
}
