/* Deliberately nothing: what counts is the library's name and that it lacks __nvJitLinkVersion. */
typedef int gpupool_compat_has_no_content;
