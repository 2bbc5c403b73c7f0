/**
 * The API reference as a page for people.
 *
 * In: the OpenAPI document of the service. Out: one HTML page with its style and script; a policy forbids everything
 * else. All texts are escaped, since the address in them is the client's `Host`.
 * Invariant: the page shows what the document contains. Crash: nothing is stored here.
 * Why not a library, measured at 390 px: Redoc 2.5.4 (1.1 MB) needs inline styles, contacts a foreign host and has 908
 * faults of axe-core; RapiDoc 9.3.8 (0.9 MB) breaks the style policy 1,811 times, contacts a foreign host and has 342.
 */
import { createHash } from 'node:crypto';
import { gzipSync } from 'node:zlib';
import { block, describeCall, listCalls, type Call, type OpenApiDocument } from './call-view.ts';
import { pageScript, pageStyle } from './page-style.ts';
import { describeMembers, html, Markup, type Schema } from './schema-view.ts';

const hashOf = (text: string): string => `'sha256-${createHash('sha256').update(text).digest('base64')}'`;

/** The policy contains the hashes of these exact bytes. */
const style = new Markup(`<style>${pageStyle}</style>`);
const script = new Markup(`<script>${pageScript}</script>`);

export const pagePolicy = [
  "default-src 'none'",
  `style-src ${hashOf(pageStyle)}`,
  `script-src ${hashOf(pageScript)}`,
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
].join('; ');

function groupCalls(calls: readonly Call[]): ReadonlyMap<string, readonly Call[]> {
  const groups = new Map<string, Call[]>();
  for (const call of calls) {
    const [tag = ''] = call.tags;
    groups.set(tag, [...(groups.get(tag) ?? []), call]);
  }
  return groups;
}

function describeSchema([name, schema]: readonly [string, Schema]): Markup {
  const { description } = schema;
  const members = describeMembers(schema) ?? block(`Schema of ${name}`, JSON.stringify(schema, null, 2));
  return html`<section id="schema-${name}" aria-labelledby="schema-${name}-title">
    <h3 id="schema-${name}-title">${name}</h3>
    ${typeof description === 'string' ? html`<p>${description}</p>` : ''}
    <details>
      <summary>Members of ${name}</summary>
      ${members}
    </details>
  </section>`;
}

function renderReference(document: OpenApiDocument): string {
  const { info, components } = document;
  const groups = [...groupCalls(listCalls(document))];
  const schemas = Object.entries(components.schemas);
  const links = groups.map(
    ([tag, calls]) =>
      html`<h2>${tag}</h2>
        <ul>
          ${calls.map(({ operationId, summary }) => html`<li><a href="#${operationId}">${summary}</a></li>`)}
        </ul>`,
  );
  const parts = groups.map(
    ([tag, calls]) =>
      html`<h2 id="group-${tag}">${tag}</h2>
        ${calls.map(describeCall)}`,
  );
  const ways = Object.entries(components.securitySchemes).map(
    ([name, { description }]) =>
      html`<dt><code>${name}</code></dt>
        <dd><p>${description}</p></dd>`,
  );
  const page = html`<!doctype html>
    <html lang="en">
      <head>
        <meta charset="utf-8" />
        <meta name="viewport" content="width=device-width, initial-scale=1" />
        <title>${info.title} API ${info.version}</title>
        ${style}
      </head>
      <body>
        <a class="skip" href="#content">To the operations</a>
        <div class="layout">
          <nav aria-label="Operations">
            <form role="search" hidden>
              <label for="wanted">Find an operation</label><input id="wanted" type="search" autocomplete="off" />
              <p role="status"></p>
            </form>
            ${links}
            <h2>Schemas</h2>
            <ul>
              ${schemas.map(([name]) => html`<li><a href="#schema-${name}">${name}</a></li>`)}
            </ul>
          </nav>
          <main id="content" tabindex="-1">
            <h1>${info.title} API <span class="type">${info.version}</span></h1>
            <p class="lead">
              ${info.description} As OpenAPI for generated clients: <a href="/openapi.json">/openapi.json</a>.
            </p>
            <h2>Authorization</h2>
            <dl>${ways}</dl>
            ${parts}
            <h2 id="group-schemas">Schemas</h2>
            ${schemas.map(describeSchema)}
          </main>
        </div>
        ${script}
      </body>
    </html> `;
  return page.text;
}

type Describe = (exportUrl: string) => object;

export function createReferencePages(describe: Describe): (exportUrl: string) => Addressed {
  return createAddressed(
    (exportUrl) => renderReference(describe(exportUrl) as OpenApiDocument),
    (text) => html`${text}`.text,
  );
}

export function createReferenceDocuments(describe: Describe): (exportUrl: string) => Addressed {
  return createAddressed(
    (exportUrl) => JSON.stringify(describe(exportUrl)),
    (text) => JSON.stringify(text).slice(1, -1),
  );
}

export interface Addressed {
  readonly plain: Buffer;
  readonly gzip: () => Buffer;
}

/** A placeholder address for rendering: an unused host, and a port that marks the area. */
const noHost = 'address.invalid';
const noUrl = `http://${noHost}:1`;

/** Returns the host of a URL that may be invalid: the client chooses it. */
const hostOf = (url: string): string => /^https?:\/\/(\[[^\]]*\]|[^:/]*)/.exec(url)?.[1] ?? '';

/** Maximum number of cached texts: clients choose the Host header. */
const maxKept = 4;

function keepBytes(plain: Buffer): Addressed {
  let packed: Buffer | undefined;
  return { plain, gzip: () => (packed ??= gzipSync(plain)) };
}

/** Creates texts with the address of the request: rendered once, then each address is inserted, escaped by `escape`. */
function createAddressed(
  render: (exportUrl: string) => string,
  escape: (text: string) => string,
): (exportUrl: string) => Addressed {
  const pages = new Map<string, Addressed>();
  let rendered: string | undefined;
  return (exportUrl) => {
    const known = pages.get(exportUrl);
    if (known !== undefined) return known;
    rendered ??= render(noUrl);
    // The import area may be described under the same host with another port.
    const text = rendered
      .replaceAll(noUrl, () => escape(exportUrl))
      .replaceAll(noHost, () => escape(hostOf(exportUrl)));
    const page = keepBytes(Buffer.from(text));
    const [oldest] = pages.keys();
    if (pages.size >= maxKept && oldest !== undefined) pages.delete(oldest);
    pages.set(exportUrl, page);
    return page;
  };
}
