/** JSON as OpenAPI has it. */
export type OpenApiObject = { readonly [name: string]: unknown };

/** The two areas of the API, each on a host of its own (service.md 4). */
export type OpenApiArea = 'import' | 'export';

/** An address that serves an area, as OpenAPI's Server Object has it. */
export interface OpenApiServer {
  readonly url: string;
  readonly description: string;
  readonly variables?: Readonly<Record<string, { readonly default: string; readonly description: string }>>;
}

/** One area's share of the API reference. Paths and component names of the areas must not collide. */
export interface OpenApiPart {
  /** Which area serves these paths: each path gets that area's servers. */
  readonly area: OpenApiArea;
  /** By path, then by verb in lower case. */
  readonly paths: Readonly<Record<string, unknown>>;
  readonly components: {
    readonly schemas: Readonly<Record<string, unknown>>;
    readonly securitySchemes: Readonly<Record<string, unknown>>;
  };
}

function merge<T>(maps: readonly Readonly<Record<string, T>>[]): Record<string, T> {
  const merged: Record<string, T> = {};
  for (const map of maps) {
    for (const [name, value] of Object.entries(map)) {
      if (Object.hasOwn(merged, name)) throw new Error(`two areas describe ${name}`);
      merged[name] = value;
    }
  }
  return merged;
}

/**
 * Joins the areas' parts into one OpenAPI 3.1 document. Every path names the servers of its area, since a path without
 * any would stand under the host that the document came from. Throws when two parts describe the same thing.
 */
export function assembleOpenApi(
  version: string,
  servers: Readonly<Record<OpenApiArea, OpenApiServer>>,
  parts: readonly OpenApiPart[],
): OpenApiObject {
  const pathsOf = ({ paths, area }: OpenApiPart): Record<string, unknown> =>
    Object.fromEntries(
      Object.entries(paths).map(([path, verbs]) => [path, { servers: [servers[area]], ...(verbs as OpenApiObject) }]),
    );
  return {
    openapi: '3.1.0',
    info: { title: 'tributary', version, description: 'Import of user and device events, and export of raw data.' },
    servers: [servers.export],
    paths: merge(parts.map(pathsOf)),
    components: {
      schemas: merge(parts.map((part) => part.components.schemas)),
      securitySchemes: merge(parts.map((part) => part.components.securitySchemes)),
    },
  };
}
