/** JSON as OpenAPI has it. */
export type OpenApiObject = { readonly [name: string]: unknown };

/** One area's share of the API reference. Paths and component names of the areas must not collide. */
export interface OpenApiPart {
  /** Where this area is served, when the reference is not served there itself; it goes to each of its paths. */
  readonly serverUrl?: string | undefined;
  /** By path, then by verb in lower case. */
  readonly paths: Readonly<Record<string, unknown>>;
  readonly components: { readonly schemas: Readonly<Record<string, unknown>>; readonly securitySchemes: Readonly<Record<string, unknown>> };
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

/** Joins the areas' parts into one OpenAPI 3.1 document. Throws when two areas describe the same thing. */
export function assembleOpenApi(version: string, parts: readonly OpenApiPart[]): OpenApiObject {
  const pathsOf = ({ paths, serverUrl }: OpenApiPart): Record<string, unknown> => {
    const servers = serverUrl === undefined ? {} : { servers: [{ url: serverUrl }] };
    return Object.fromEntries(Object.entries(paths).map(([path, verbs]) => [path, { ...servers, ...(verbs as OpenApiObject) }]));
  };
  return {
    openapi: '3.1.0',
    info: { title: 'tributary', version, description: 'Import of user and device events, and export of raw data.' },
    paths: merge(parts.map(pathsOf)),
    components: {
      schemas: merge(parts.map((part) => part.components.schemas)),
      securitySchemes: merge(parts.map((part) => part.components.securitySchemes)),
    },
  };
}
